// Transposed convolutions: the gradient of a convolution with respect to its input, as a layer.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Each list has one entry per spatial dim, or a single entry for all of them.
struct ConvTransposeOptions {
  Dims stride = {1};
  Dims padding = {0};
  Dims output_padding = {0};  // extra elements at the end of the result; must be less than the stride
  Dims dilation = {1};
  int64_t groups = 1;
};

// y = convolution_input_gradient(x, weight) + bias: x[n, o, p] * weight[o, c, k] is added to y[n, c, p * stride -
// padding + k * dilation]. Shapes: x [N, O, P...] or [O, P...], weight [O, C / groups, K...], bias [C] or undefined ->
// [N, C, S...] or [C, S...], S = (P - 1) stride - 2 padding + dilation (K - 1) + output_padding + 1. Dtypes and order
// of summation are those of convolution_input_gradient. UsageError when sizes and options do not match; the message
// shows the formula.
Tensor conv_transpose1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {},
                        const ConvTransposeOptions& options = {});

}  // namespace tutti
