// Maxima over windows.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// Each list has one entry per spatial dim, or a single entry for all of them.
struct MaxPoolOptions {
  Dims kernel;
  Dims stride = {};  // empty: the kernel size
  Dims padding = {0};
  Dims dilation = {1};
  bool ceil_mode =
      false;  // keep a last window that reaches past the end, if it starts in x or in the padding before it
};

// `indices` (i64): the row-major position of each maximum within its plane.
struct MaxPoolResult {
  Tensor values, indices;
};

// y[n, c, p] = max over k of x[n, c, p * stride - padding + k * dilation]; positions outside x are ignored. Among equal
// elements the first is chosen, and NaN is larger than every number. Shapes: x [N, C, S...] or [C, S...] -> [N, C,
// P...] or [C, P...], P = floor((S + 2 padding - dilation (K - 1) - 1) / stride) + 1, or ceil with ceil_mode. Dtypes:
// f64, f32, bf16, f16, integers. UsageError when sizes and options do not match (the message shows the formula) or a
// window covers no element. The gradient goes to the chosen element. Source: definition.
Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options);
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options);
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options);
MaxPoolResult max_pool1d_with_indices(const Tensor& x, const MaxPoolOptions& options);
MaxPoolResult max_pool2d_with_indices(const Tensor& x, const MaxPoolOptions& options);
MaxPoolResult max_pool3d_with_indices(const Tensor& x, const MaxPoolOptions& options);

// Maxima over `output` windows per dim: window o of P covers the elements floor(o S / P) to ceil((o + 1) S / P) - 1. An
// output size of -1 is the size of x along that dim.
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output);
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output);
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output);
MaxPoolResult adaptive_max_pool1d_with_indices(const Tensor& x, const Dims& output);
MaxPoolResult adaptive_max_pool2d_with_indices(const Tensor& x, const Dims& output);
MaxPoolResult adaptive_max_pool3d_with_indices(const Tensor& x, const Dims& output);

// A tensor of zeros with spatial sizes `sizes` in which every element of x is placed at its index; where indices are
// equal, the last element wins. Shapes: x and indices [N, C, P...] or [C, P...] -> [N, C, sizes...] or [C, sizes...].
// UsageError for an index outside the plane.
Tensor max_unpool(const Tensor& x, const Tensor& indices, const Dims& sizes);

}  // namespace tutti
