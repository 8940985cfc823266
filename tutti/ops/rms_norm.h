// Normalization of rows by their root mean square.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

enum class NormWeight : uint8_t {
  factor,         // rows are multiplied by weight
  zero_centered,  // by 1 + weight, as in Gemma 1 to 3
};

// x * rsqrt(mean(x^2) + eps) * weight over the last dim, in f32 (f64 for f64), rounded once; with zero_centered times
// 1 + weight, a sum in the same dtype. An undefined weight stands for a factor of ones. Shapes: x [..., H]; weight [H],
// or more trailing dims of x ([heads, H] for a norm per head; expand() a shared one). The dims of x before those of
// weight are tokens; the gradient of `weight` is f32 and sums over them in the order of numerics contract N3t. Source:
// Zhang and Sennrich 2019, eq. 4.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6, NormWeight form = NormWeight::factor);

}  // namespace tutti
