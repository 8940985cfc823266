// Convolutions over one to three dims, as deep learning calls them: the kernel is not flipped.
#pragma once

#include <array>
#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

enum class ConvPadding : uint8_t {
  given,  // ConvOptions::padding on both sides
  valid,  // none
  same,   // as many outputs as inputs; of an odd number of zeros the one more stands behind. Needs stride 1
};

// A number for each spatial dim; one number stands for all of them.
struct ConvOptions {
  Dims stride = {1};
  Dims padding = {0};
  Dims dilation = {1};
  int64_t groups = 1;
  ConvPadding mode = ConvPadding::given;
};

// y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] * x[n, group(o) * C / groups + c, p * stride - padding + k * dilation],
// x being 0 outside. The sum is a contraction over (c, k) in row-major order (numerics contract, N3), in f32 (f64 when an
// operand is f64), rounded once, before the bias is added.
// Shapes: x [N, C, S...] or [C, S...], weight [O, C / groups, K...], bias [O] or undefined -> [N, O, P...] or [O, P...],
// P = floor((S + 2 padding - dilation (K - 1) - 1) / stride) + 1. Dtypes: f64, f32, bf16, f16.
// Errors: sizes, groups or options that do not fit, with the formula. Gradients: of the weight in f32, one contraction over
// (n, p) as tokens; of x by convolution_input_gradient. Source: definition.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});

// The gradient of convolution x -> y without bias: grad [N, O, P...] -> [N, C, S...] for spatial sizes S. For every tap of
// the kernel a contraction over the output channels of the group; an element adds up its taps in row-major order, in f32
// (f64), and is rounded once, to the dtype of `grad`. This is also what transposed convolution computes.
Tensor convolution_input_gradient(const Tensor& grad, const Tensor& weight, const Dims& spatial_sizes, const ConvOptions& options = {});
// The gradient for the weight with kernels of sizes K: grad [N, O, P...], x [N, C, S...] -> [O, C / groups, K...], f32 (f64).
Tensor convolution_weight_gradient(const Tensor& grad, const Tensor& x, const Dims& kernel_sizes, const ConvOptions& options = {});

}  // namespace tutti
