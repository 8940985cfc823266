// Means over windows.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

// A number for each spatial dim; one number stands for all of them.
struct AvgPoolOptions {
  Dims kernel;
  Dims stride = {};  // none: that of the kernel
  Dims padding = {0};
  bool ceil_mode = false;  // a last window that reaches beyond x counts, if it begins in x or in the padding before it
  bool count_include_pad = true;  // whether zeros of the padding count; what lies beyond the padding never does
  std::optional<int64_t> divisor_override = {};  // instead of the number of elements
};

// y[n, c, p] = (sum over k of x[n, c, p * stride - padding + k]) / number of elements of the window. The sum over a window,
// row-major, is that of reductions (numerics contract, N3), in f32 (f64), divided and rounded once.
// Shapes: x [N, C, S...] or [C, S...] -> [N, C, P...] or [C, P...], P = floor((S + 2 padding - K) / stride) + 1, ceil with
// ceil_mode. Dtypes: f64, f32, bf16, f16. Errors: numbers that do not fit, with the formula; a divisor of 0.
// Gradient: avg_pool_backward. Source: definition.
Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options);

// As many windows as asked for: number o of P has the elements floor(o S / P) to ceil((o + 1) S / P) - 1.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output);

}  // namespace tutti
