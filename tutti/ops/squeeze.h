// Dims of size 1, taken away or put in, on the same storage.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Without the dims in `dims` whose size is 1; the others stay. An empty list means all dims.
Tensor squeeze(const Tensor& x, const Dims& dims = {});
// Without `dim` when its size is 1.
Tensor squeeze(const Tensor& x, int64_t dim);
// With a dim of size 1 in front of dim `dim`, in [-ndim - 1, ndim].
Tensor unsqueeze(const Tensor& x, int64_t dim);

}  // namespace tutti
