// Adding elements at given indices.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A copy of x to which source[i, j, k] is added at [i, index[i, j, k], k] for dim = 1, and so on. Terms with the same
// destination are added in ascending order of j, ((x + first) + second) ..., with the same bits on any number of
// threads. Shapes: source and index have equal sizes, no larger than x except along `dim`. Dtypes: x and source are
// equal or both floats; index i64 or i32. Narrow floats are added in f32 and rounded once. UsageError for an index
// outside [0, size of dim).
Tensor scatter_add(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);

}  // namespace tutti
