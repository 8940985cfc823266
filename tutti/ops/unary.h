// Pointwise functions of one tensor. The result has the sizes of x.
//
// Dtypes: "any" keeps the type of x; "float" computes floats in their own type (narrow floats in f32, rounded once) and
// turns integers and booleans into f32; "truth" gives booleans. Errors of the f32 functions are those of the code
// generator's polynomials (docs/math_ulp.md). Each is its definition in IEEE 754 or in ISO C math.h.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

// ---- any: integers stay what they are --------------------------------------------------------------------------------
Tensor abs(const Tensor& x);    // the smallest integer stays itself
Tensor neg(const Tensor& x);    // integers wrap. Error: booleans (logical_not)
Tensor sign(const Tensor& x);   // -1, 0, 1; NaN gives 0
Tensor ceil(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor trunc(const Tensor& x);
Tensor round(const Tensor& x);  // halves to even
Tensor bitwise_not(const Tensor& x);  // booleans: logical not. Error: floats

// ---- float ------------------------------------------------------------------------------------------------------------
Tensor exp(const Tensor& x);
Tensor exp2(const Tensor& x);
Tensor expm1(const Tensor& x);
Tensor log(const Tensor& x);
Tensor log2(const Tensor& x);
Tensor log10(const Tensor& x);
Tensor log1p(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);       // 1 / sqrt(x), two roundings
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
Tensor erfinv(const Tensor& x);      // inverse of erf on (-1, 1)
Tensor sigmoid(const Tensor& x);     // 1 / (1 + exp(-x))
Tensor lgamma(const Tensor& x);      // log |gamma(x)|

// ---- truth ------------------------------------------------------------------------------------------------------------
Tensor signbit(const Tensor& x);     // true for -0.0 and a negative NaN
Tensor logical_not(const Tensor& x); // x == 0
Tensor isnan(const Tensor& x);
Tensor isinf(const Tensor& x);

}  // namespace tutti
