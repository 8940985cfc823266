// Means over windows.
#pragma once

#include <optional>

#include "tutti/tensor/tensor.h"

namespace tutti {

// Each list has one entry per spatial dim, or a single entry for all of them.
struct AvgPoolOptions {
  Dims kernel;
  Dims stride = {};  // empty: the kernel size
  Dims padding = {0};
  bool ceil_mode =
      false;  // keep a last window that reaches past the end, if it starts in x or in the padding before it
  bool count_include_pad = true;  // the divisor counts zeros of the padding, but never positions beyond the padding
  std::optional<int64_t> divisor_override = {};  // the divisor, in place of the number of elements
};

// y[n, c, p] = (sum over k of x[n, c, p * stride - padding + k]) / number of elements of the window. A window is summed
// in row-major order with the tree of reductions (numerics contract, N3), in f32 (f64 for f64), then divided and
// rounded once. Shapes: x [N, C, S...] or [C, S...] -> [N, C, P...] or [C, P...], P = floor((S + 2 padding - K) /
// stride) + 1, or ceil with ceil_mode. Dtypes: f64, f32, bf16, f16. UsageError when sizes and options do not match (the
// message shows the formula), or for a divisor of 0. Gradient: avg_pool_backward. Source: definition.
Tensor avg_pool1d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool2d(const Tensor& x, const AvgPoolOptions& options);
Tensor avg_pool3d(const Tensor& x, const AvgPoolOptions& options);

// Averages over `output` windows per dim: window o of P covers the elements floor(o S / P) to ceil((o + 1) S / P) - 1.
// An output size of -1 is the size of x along that dim.
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output);

}  // namespace tutti
