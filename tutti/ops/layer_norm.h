// Normalization of rows by mean and variance.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// (x - mean) * rsqrt(var + eps) * weight + bias over the last dim; the variance is uncorrected (divided by H). An
// undefined weight stands for ones, an undefined bias for zeros. Shapes: x [..., H], weight [H], bias [H]. Source: Ba
// et al. 2016, eq. 3.
Tensor layer_norm(const Tensor& x, const Tensor& weight = {}, const Tensor& bias = {}, double eps = 1e-5);

}  // namespace tutti
