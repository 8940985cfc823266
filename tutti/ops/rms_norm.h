// Normalization of rows by their root mean square.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// x * rsqrt(mean(x^2) + eps) * weight over the last dim, in f32 (f64 for f64), rounded once. An undefined weight stands
// for ones. Shapes: x [..., H]; weight [H], or more trailing dims of x ([heads, H] for a norm per head; expand() a
// shared one). The dims of x before those of weight are tokens; the gradient of `weight` is f32 and sums over them in
// the order of numerics contract N3t. Source: Zhang and Sennrich 2019, eq. 4.
Tensor rms_norm(const Tensor& x, const Tensor& weight = {}, double eps = 1e-6);

}  // namespace tutti
