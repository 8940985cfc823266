// Operators on tensors and numbers: operator spellings of the functions in binary.h, bitwise.h, comparison.h and
// inplace.h.
//
// `/` is true division. `%` is not defined, because C++ and Python disagree about it: use remainder() or fmod(), and
// for integer quotients floordiv() or truncdiv(). == and != are not defined either, because they would be expected to
// return a single bool: use eq() and ne(). Comparisons have boolean tensors as results, which &, |, ^ and ~ combine:
// (x > 0) & (x < 1).
//
// +=, -=, *= and /= write the tensor on the left in place, as in PyTorch: every tensor on its memory changes, and its
// dtype does not. Where a gradient is wanted they are an error, as the functions are: write `x = x + y`. `x[i]` is a
// member of Tensor; `x[i] += y` writes a part of x.
#pragma once

#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/inplace.h"
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
TUTTI_TENSOR_OPERATOR(&, bit_and)
TUTTI_TENSOR_OPERATOR(|, bit_or)
TUTTI_TENSOR_OPERATOR(^, bit_xor)

#undef TUTTI_TENSOR_OPERATOR

inline Tensor operator-(const Tensor& x) { return neg(x); }
inline Tensor operator~(const Tensor& x) { return bitwise_not(x); }

// The target is a handle, so that temporaries such as x[i] may stand on the left.
#define TUTTI_WRITING_OPERATOR(sign, function)                                                       \
  inline Tensor operator sign(const Tensor& target, const Tensor& x) { return function(target, x); } \
  inline Tensor operator sign(const Tensor& target, const Scalar& x) { return function(target, x); }

TUTTI_WRITING_OPERATOR(+=, add_)
TUTTI_WRITING_OPERATOR(-=, sub_)
TUTTI_WRITING_OPERATOR(*=, mul_)
TUTTI_WRITING_OPERATOR(/=, truediv_)

#undef TUTTI_WRITING_OPERATOR

}  // namespace tutti
