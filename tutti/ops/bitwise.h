// Bitwise functions of integers and booleans. Operands and result types are as in tutti/ops/binary.h.
#pragma once

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

#define TUTTI_DECLARE_BITWISE(op)              \
  Tensor op(const Tensor& a, const Tensor& b); \
  Tensor op(const Tensor& a, const Scalar& b); \
  Tensor op(const Scalar& a, const Tensor& b);

TUTTI_DECLARE_BITWISE(bit_and)
TUTTI_DECLARE_BITWISE(bit_or)
TUTTI_DECLARE_BITWISE(bit_xor)
// Shifts, for integers only. A count outside [0, width) shifts all bits out.
TUTTI_DECLARE_BITWISE(shl)
TUTTI_DECLARE_BITWISE(shr)  // arithmetic shift: copies of the sign bit come in from the left

#undef TUTTI_DECLARE_BITWISE

}  // namespace tutti
