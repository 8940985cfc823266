// Maxima over windows.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// A number for each spatial dim; one number stands for all of them.
struct MaxPoolOptions {
  Dims kernel;
  Dims stride = {};  // none: that of the kernel
  Dims padding = {0};
  Dims dilation = {1};
  bool ceil_mode = false;  // a last window that reaches beyond x counts, if it begins in x or in the padding before it
};

// `indices`: where in its plane each maximum stands, row-major, i64.
struct MaxPoolResult {
  Tensor values, indices;
};

// y[n, c, p] = max over k of x[n, c, p * stride - padding + k * dilation]; what lies outside of x never wins. Of equal
// elements the first wins, NaN is above all.
// Shapes: x [N, C, S...] or [C, S...] -> [N, C, P...] or [C, P...], P = floor((S + 2 padding - dilation (K - 1) - 1) / stride) + 1,
// ceil with ceil_mode. Dtypes: f64, f32, bf16, f16. Errors: numbers that do not fit, with the formula; windows without an
// element. Gradient: to the element that won. Source: definition.
Tensor max_pool1d(const Tensor& x, const MaxPoolOptions& options);
Tensor max_pool2d(const Tensor& x, const MaxPoolOptions& options);
Tensor max_pool3d(const Tensor& x, const MaxPoolOptions& options);
MaxPoolResult max_pool1d_with_indices(const Tensor& x, const MaxPoolOptions& options);
MaxPoolResult max_pool2d_with_indices(const Tensor& x, const MaxPoolOptions& options);
MaxPoolResult max_pool3d_with_indices(const Tensor& x, const MaxPoolOptions& options);

// As many windows as asked for: number o of P has the elements floor(o S / P) to ceil((o + 1) S / P) - 1.
Tensor adaptive_max_pool1d(const Tensor& x, const Dims& output);
Tensor adaptive_max_pool2d(const Tensor& x, const Dims& output);
Tensor adaptive_max_pool3d(const Tensor& x, const Dims& output);
MaxPoolResult adaptive_max_pool1d_with_indices(const Tensor& x, const Dims& output);
MaxPoolResult adaptive_max_pool2d_with_indices(const Tensor& x, const Dims& output);
MaxPoolResult adaptive_max_pool3d_with_indices(const Tensor& x, const Dims& output);

// Zeros of spatial sizes `sizes`, and every element of x at its index. Of equal indices the last element stays.
// Shapes: x and indices [N, C, P...] or [C, P...] -> [N, C, sizes...]. Error: an index outside of the plane.
Tensor max_unpool(const Tensor& x, const Tensor& indices, const Dims& sizes);

}  // namespace tutti
