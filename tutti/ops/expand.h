// Broadcasting as a view: dims of size 1, and new leading dims, appear repeated without using memory.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A view of `x` broadcast to `sizes`; -1 keeps the size of a dim of x. The result must not be written.
// UsageError when a dim of x is neither 1 nor the wanted size, or when there are fewer sizes than dims.
Tensor expand(const Tensor& x, const Shape& sizes);
Tensor expand_as(const Tensor& x, const Tensor& other);

// The gradient of expand: `grad` summed over the repeated dims, which gives a tensor of `sizes`. The repeated elements
// are combined by halving down to single elements (numerics contract, N3t). Sums over tokens are taken earlier, per
// head, so for a weight that heads share the sum over heads comes last. Dtypes: f32 for the narrow floats, else that of
// `grad`.
Tensor expand_backward(const Tensor& grad, const Shape& sizes);

}  // namespace tutti
