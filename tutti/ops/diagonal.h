// Diagonals, on the same storage.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A view of the elements [i, i + offset] of the planes spanned by dim0 and dim1. Those two dims are removed and the
// diagonal becomes the last dim. UsageError when dim0 equals dim1.
Tensor diagonal(const Tensor& x, int64_t offset = 0, int64_t dim0 = 0, int64_t dim1 = 1);

// The gradient of diagonal: `grad` on the diagonal of a tensor of `sizes`, -0.0 elsewhere.
Tensor diagonal_backward(const Tensor& grad, const Shape& sizes, int64_t offset = 0, int64_t dim0 = 0,
                         int64_t dim1 = 1);

}  // namespace tutti
