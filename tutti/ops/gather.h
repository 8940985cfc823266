// Elements and rows picked by index.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// y[i, j, k] = x[i, index[i, j, k], k] for dim = 1, and so on.
// Shapes: x and index have the same number of dims, index is nowhere larger but along `dim`; y has the sizes of index.
// Dtypes: x any, index i64 or i32. Error: an index outside [0, size of dim).
// Gradient: scatter_add, in ascending order of the elements of y; f32 for the narrow floats.
Tensor gather(const Tensor& x, int64_t dim, const Tensor& index);

// The slices x[.., index[k], ..] along `dim`. Shapes: index [K]. Dtypes and errors as gather.
Tensor index_select(const Tensor& x, int64_t dim, const Tensor& index);

}  // namespace tutti
