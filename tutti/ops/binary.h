// Pointwise functions of two operands, each a tensor or one of them a number. Tensors broadcast (NumPy's rule).
//
// Dtypes: two tensors give their common type, a number never widens a tensor within its kind (tutti/ops/scalar.h).
// Narrow floats are computed in f32 and rounded once. Integers are Python's, at the width of the result, and wrap.
// Errors common to all: sizes that do not broadcast; a number that does not fit in the integer type of the tensor; an
// integer divided by zero (IntegerDivideByZero). Source: tutti/core/number.h; IEEE 754 for the rest.
#pragma once

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

#define TUTTI_DECLARE_BINARY(op)                  \
  Tensor op(const Tensor& a, const Tensor& b);    \
  Tensor op(const Tensor& a, const Scalar& b);    \
  Tensor op(const Scalar& a, const Tensor& b);

TUTTI_DECLARE_BINARY(add)        // booleans: or
TUTTI_DECLARE_BINARY(sub)        // Error: two booleans (bit_xor)
TUTTI_DECLARE_BINARY(mul)        // booleans: and
TUTTI_DECLARE_BINARY(truediv)    // integers are converted to f32 first
TUTTI_DECLARE_BINARY(floordiv)   // toward minus infinity; booleans as i64
TUTTI_DECLARE_BINARY(truncdiv)   // toward zero; booleans as i64
TUTTI_DECLARE_BINARY(remainder)  // sign of the divisor; booleans as i64
TUTTI_DECLARE_BINARY(fmod)       // sign of the dividend; booleans as i64
// a to the power b. Integers exactly modulo 2^width; a negative exponent in a tensor gives 1 for base 1, +-1 for base -1,
// else 0. Error: integers to a negative integer number.
TUTTI_DECLARE_BINARY(pow)
TUTTI_DECLARE_BINARY(maximum)    // a NaN operand gives NaN; equal operands share the gradient
TUTTI_DECLARE_BINARY(minimum)
TUTTI_DECLARE_BINARY(fmax)       // a NaN operand is ignored
TUTTI_DECLARE_BINARY(fmin)
TUTTI_DECLARE_BINARY(atan2)      // the angle of (b, a); integers give f32
TUTTI_DECLARE_BINARY(copysign)   // |a| with the sign of b; integers give f32
TUTTI_DECLARE_BINARY(nextafter)  // the float after a toward b. Dtypes: f32, f64

#undef TUTTI_DECLARE_BINARY

}  // namespace tutti
