// Views with dims of size 1 removed or inserted.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Removes those dims in `dims` whose size is 1 and keeps the others. An empty list means all dims.
Tensor squeeze(const Tensor& x, const Dims& dims = {});
// Removes `dim` if its size is 1.
Tensor squeeze(const Tensor& x, int64_t dim);
// Inserts a dim of size 1, which becomes dim `dim` of the result; `dim` is in [-ndim - 1, ndim].
Tensor unsqueeze(const Tensor& x, int64_t dim);

}  // namespace tutti
