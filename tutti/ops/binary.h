// Pointwise functions of two tensors, or of a tensor and a number. Tensors broadcast by NumPy's rule.
//
// Dtypes: two tensors give their common type (promote()); a number never widens a tensor within its kind
// (tutti/ops/scalar.h). Narrow floats are computed in f32 and rounded once. Integer arithmetic follows Python's rules
// at the width of the result, and wraps. UsageError when sizes do not broadcast or a number does not fit the integer
// type of the tensor; IntegerDivideByZero for an integer division by zero. Source: tutti/core/number.h; IEEE 754 for
// the rest.
#pragma once

#include "tutti/ops/scalar.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

#define TUTTI_DECLARE_BINARY(op)               \
  Tensor op(const Tensor& a, const Tensor& b); \
  Tensor op(const Tensor& a, const Scalar& b); \
  Tensor op(const Scalar& a, const Tensor& b);

TUTTI_DECLARE_BINARY(add)        // logical or for booleans
TUTTI_DECLARE_BINARY(sub)        // UsageError for two booleans: use bit_xor
TUTTI_DECLARE_BINARY(mul)        // logical and for booleans
TUTTI_DECLARE_BINARY(truediv)    // integers are converted to f32 first
TUTTI_DECLARE_BINARY(floordiv)   // rounds toward minus infinity; booleans are converted to i64
TUTTI_DECLARE_BINARY(truncdiv)   // rounds toward zero; booleans are converted to i64
TUTTI_DECLARE_BINARY(remainder)  // has the sign of the divisor; booleans are converted to i64
TUTTI_DECLARE_BINARY(fmod)       // has the sign of the dividend; booleans are converted to i64
// a to the power b. Integer powers are exact modulo 2^width; a negative exponent inside a tensor gives 1 for base 1,
// +-1 for base -1 and 0 otherwise. UsageError for integers raised to a negative integer number.
TUTTI_DECLARE_BINARY(pow)
TUTTI_DECLARE_BINARY(maximum)  // a NaN operand gives NaN; -0 is smaller than 0; equal operands share the gradient
TUTTI_DECLARE_BINARY(minimum)
TUTTI_DECLARE_BINARY(fmax)  // a NaN operand is ignored
TUTTI_DECLARE_BINARY(fmin)
TUTTI_DECLARE_BINARY(atan2)      // the angle of the point (x = b, y = a); integers give f32
TUTTI_DECLARE_BINARY(copysign)   // |a| with the sign of b; integers give f32
TUTTI_DECLARE_BINARY(nextafter)  // the next float after a in the direction of b. Dtypes: f32, f64

#undef TUTTI_DECLARE_BINARY

}  // namespace tutti
