// Sliding windows as a view.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Windows of `size` elements along `dim`, `step` elements apart. In the result dim `dim` indexes the windows, and a new
// last dim of `size` holds their elements. UsageError when size is larger than the dim or step < 1.
Tensor unfold(const Tensor& x, int64_t dim, int64_t size, int64_t step);

// The gradient of unfold, a tensor of `sizes`: each element sums the gradients of the windows that contain it, in
// ascending order. Dtypes: f32 for the narrow floats, else that of `grad`.
Tensor unfold_backward(const Tensor& grad, const Shape& sizes, int64_t dim, int64_t size, int64_t step);

}  // namespace tutti
