// Sliding windows, on the same storage.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Windows of `size` elements along `dim`, each `step` behind the one before. Dim `dim` counts the windows, a last dim
// of `size` holds their elements. Error: size larger than the dim; step < 1.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);

// The gradient of unfold: each element of a tensor of `sizes` sums its windows in ascending order.
// Dtypes: f32 for the narrow floats, else that of `grad`.
Tensor unfold_backward(const Tensor& grad, const Shape& sizes, int64_t dim, int64_t size, int64_t step);

}  // namespace tutti
