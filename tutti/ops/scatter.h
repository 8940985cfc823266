// Writing elements at given indices.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A copy y of x with y[i, index[i, j, k], k] = source[i, j, k] for dim = 1, and so on. Where several elements have the
// same destination, the one with the highest j wins. Shapes: source and index have equal sizes, no larger than x except
// along `dim`. Dtypes: x and source equal, index i64 or i32. UsageError for an index outside [0, size of dim). The
// gradient assumes that no element is written twice.
Tensor scatter(const Tensor& x, int64_t dim, const Tensor& index, const Tensor& source);

}  // namespace tutti
