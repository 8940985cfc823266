// Operators on tensors and numbers: operator spellings of the functions in binary.h and comparison.h.
//
// `/` is true division. `%` is not defined, because C++ and Python disagree about it: use remainder() or fmod(), and
// for integer quotients floordiv() or truncdiv(). == and != are not defined either, because they would be expected to
// return a single bool: use eq() and ne().
#pragma once

#include "tutti/ops/binary.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/unary.h"

namespace tutti {

#define TUTTI_TENSOR_OPERATOR(sign, function)                                              \
  inline Tensor operator sign(const Tensor& a, const Tensor& b) { return function(a, b); } \
  inline Tensor operator sign(const Tensor& a, const Scalar& b) { return function(a, b); } \
  inline Tensor operator sign(const Scalar& a, const Tensor& b) { return function(a, b); }

TUTTI_TENSOR_OPERATOR(+, add)
TUTTI_TENSOR_OPERATOR(-, sub)
TUTTI_TENSOR_OPERATOR(*, mul)
TUTTI_TENSOR_OPERATOR(/, truediv)
TUTTI_TENSOR_OPERATOR(<, lt)
TUTTI_TENSOR_OPERATOR(<=, le)
TUTTI_TENSOR_OPERATOR(>, gt)
TUTTI_TENSOR_OPERATOR(>=, ge)

#undef TUTTI_TENSOR_OPERATOR

inline Tensor operator-(const Tensor& x) { return neg(x); }

}  // namespace tutti
