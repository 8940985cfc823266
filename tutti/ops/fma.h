// Fused multiply and add.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// a * b + c with one rounding (integers wrap). Shapes: all broadcast. Dtypes: the common type.
Tensor fma(const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace tutti
