// Elements and slices selected by index.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// y[i, j, k] = x[i, index[i, j, k], k] for dim = 1, and so on.
// Shapes: x and index have the same number of dims, and index is no larger than x except along `dim`; y has the sizes
// of index. Dtypes: x any, index i64 or i32. UsageError for an index outside [0, size of dim). Gradient: scatter_add in
// ascending order of the elements of y, in f32 for the narrow floats.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);

// The slices x[.., index[k], ..] along `dim`. Shapes: index [K]; dim `dim` of the result has size K. Dtypes and errors
// are those of gather.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);

}  // namespace tutti
