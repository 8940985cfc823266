// Repetition without memory: dims of size 1, or new dims in front, seen as larger ones.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// `x` broadcast to `sizes` on the same storage; -1 keeps a dim of x. The result must not be written.
// Error: a dim of x that is neither 1 nor the wanted size; fewer sizes than dims.
Tensor expand(const Tensor& x, const Shape& sizes);
Tensor expand_as(const Tensor& x, const Tensor& other);

// The gradient of expand: `grad` summed over what was repeated, back to `sizes`. The repeated elements are combined by
// pure halving (leaf 1, numerics contract N3t): tokens are summed before, per head, so a weight that heads share is
// summed over heads last. Dtypes: f32 for the narrow floats, else that of `grad`.
Tensor expand_backward(const Tensor& grad, const Shape& sizes);

}  // namespace tutti
