// Activation functions. Dtypes: floats; each result is rounded once.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// max(x, 0); the gradient at 0 is 0. NaN stays NaN.
Tensor relu(const Tensor& x);
// x * sigmoid(x). Source: Elfwing et al. 2017.
Tensor silu(const Tensor& x);
enum class GeluForm : int8_t {
  erf,   // x/2 (1 + erf(x / sqrt 2))
  tanh,  // x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
};
// Source: Hendrycks and Gimpel 2016.
Tensor gelu(const Tensor& x, GeluForm form = GeluForm::erf);
// silu(gate) * up, the gated unit of LLaMA-like feed-forward layers. Shapes: gate and up are equal. Source: Shazeer
// 2020, eq. 6.
Tensor swiglu(const Tensor& gate, const Tensor& up);

}  // namespace tutti
