// Pointwise functions of one tensor. The result has the sizes of x.
//
// Dtypes: functions under "any" keep the type of x; those under "float" compute floats in their own type (narrow floats
// in f32, rounded once) and convert integers and booleans to f32; those under "truth" give booleans. The maximum errors
// of the f32 functions are listed in docs/math_ulp.md. Each function is defined as in IEEE 754 or ISO C math.h.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// ---- any: integers stay what they are
// --------------------------------------------------------------------------------
Tensor abs(const Tensor& x);   // wraps: the absolute value of the smallest integer is itself
Tensor neg(const Tensor& x);   // integers wrap. UsageError for booleans: use logical_not
Tensor sign(const Tensor& x);  // -1, 0, 1; NaN gives 0
Tensor ceil(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor trunc(const Tensor& x);
Tensor round(const Tensor& x);        // ties to even
Tensor bitwise_not(const Tensor& x);  // logical not for booleans. UsageError for floats

// ---- float
// ------------------------------------------------------------------------------------------------------------
Tensor exp(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);  // 1 / sqrt(x), two roundings
Tensor reciprocal(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor tan(const Tensor& x);
Tensor asin(const Tensor& x);
Tensor acos(const Tensor& x);
Tensor atan(const Tensor& x);
Tensor sinh(const Tensor& x);
Tensor cosh(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor asinh(const Tensor& x);
Tensor acosh(const Tensor& x);
Tensor atanh(const Tensor& x);
Tensor erf(const Tensor& x);
Tensor erfinv(const Tensor& x);   // inverse of erf on (-1, 1)
Tensor sigmoid(const Tensor& x);  // 1 / (1 + exp(-x))
Tensor lgamma(const Tensor& x);   // log |gamma(x)|

// ---- truth
// ------------------------------------------------------------------------------------------------------------
Tensor signbit(const Tensor& x);      // whether the sign bit is set, as in -0.0 and in negative NaNs
Tensor logical_not(const Tensor& x);  // x == 0
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);

}  // namespace tutti
