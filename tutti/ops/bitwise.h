// Pointwise functions of the bits of integers and booleans. Operands and types as in tutti/ops/binary.h.
#pragma once

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

#define TUTTI_DECLARE_BITWISE(op)                 \
  Tensor op(const Tensor& a, const Tensor& b);    \
  Tensor op(const Tensor& a, const Scalar& b);    \
  Tensor op(const Scalar& a, const Tensor& b);

TUTTI_DECLARE_BITWISE(bit_and)
TUTTI_DECLARE_BITWISE(bit_or)
TUTTI_DECLARE_BITWISE(bit_xor)
// Integers only. Counts outside [0, width) shift everything out.
TUTTI_DECLARE_BITWISE(shl)
TUTTI_DECLARE_BITWISE(shr)  // copies of the sign come in from the left

#undef TUTTI_DECLARE_BITWISE

}  // namespace tutti
