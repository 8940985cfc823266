// Fused multiply-add.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// a * b + c with a single rounding (integers wrap). Shapes: the operands broadcast. Dtypes: the common type of the
// operands.
Tensor fma(const Tensor& a, const Tensor& b, const Tensor& c);

}  // namespace tutti
