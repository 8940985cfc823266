// Convolutions over one to three dims in the sense of deep learning (cross-correlation): the kernel is not flipped.
#pragma once

#include <array>
#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

enum class ConvPadding : uint8_t {
  given,  // ConvOptions::padding on both sides
  valid,  // no padding
  same,   // as many outputs as inputs; when the total is odd, the extra zero is at the end. Requires stride 1
};

// Each list has one entry per spatial dim, or a single entry for all of them.
struct ConvOptions {
  Dims stride = {1};
  Dims padding = {0};
  Dims dilation = {1};
  int64_t groups = 1;
  ConvPadding mode = ConvPadding::given;
};

// y[n, o, p] = bias[o] + sum over c, k of weight[o, c, k] * x[n, group(o) * C / groups + c, p * stride - padding + k *
// dilation], where x is 0 outside its bounds. The sum is a contraction over (c, k) in row-major order (numerics
// contract, N3), computed in f32 (f64 when an operand is f64) and rounded once, before the bias is added. Shapes: x [N,
// C, S...] or [C, S...], weight [O, C / groups, K...], bias [O] or undefined -> [N, O, P...] or [O, P...], P = floor((S
// + 2 padding - dilation (K - 1) - 1) / stride) + 1. Dtypes: f64, f32, bf16, f16. UsageError when sizes, groups or
// options do not match; the message shows the formula. The gradient of the weight is f32, one contraction over (n, p)
// as tokens; that of x is convolution_input_gradient. Source: definition.
Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});
Tensor conv3d(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, const ConvOptions& options = {});

// The gradient of a convolution with respect to x: grad [N, O, P...] -> [N, C, S...], where S is `spatial_sizes`. Each
// tap of the kernel contributes a contraction over the output channels of the group; an element adds up its taps in
// row-major order, in f32 (f64), and is rounded once, to the dtype of `grad`. Transposed convolution computes the same.
Tensor convolution_input_gradient(const Tensor& grad, const Tensor& weight, const Dims& spatial_sizes,
                                  const ConvOptions& options = {});
// The gradient of a convolution with respect to its weight: grad [N, O, P...], x [N, C, S...] -> [O, C / groups, K...],
// where K is `kernel_sizes`. Dtype: f32 (f64 for f64).
Tensor convolution_weight_gradient(const Tensor& grad, const Tensor& x, const Dims& kernel_sizes,
                                   const ConvOptions& options = {});

}  // namespace tutti
