// The number protocol: Python's integer and float arithmetic, written once.
//
// Eager kernels, the constant folder, symbolic sizes and generated code all follow these definitions
// (source: Python language reference 6.7; PyTorch's element rules for floats). Integers are int64 and wrap as two's
// complement in tensor arithmetic; shape arithmetic uses the checked_* forms, which throw SymIntOverflow.
#pragma once

#include <cstdint>

namespace tutti {

// Quotient toward minus infinity; INT64_MIN / -1 wraps to INT64_MIN. Precondition: b != 0.
int64_t floordiv_i64(int64_t a, int64_t b);
// Quotient toward zero; INT64_MIN / -1 wraps. Precondition: b != 0.
int64_t truncdiv_i64(int64_t a, int64_t b);
// Remainder with the sign of the divisor. Precondition: b != 0.
int64_t remainder_i64(int64_t a, int64_t b);
// Remainder with the sign of the dividend. Precondition: b != 0.
int64_t fmod_i64(int64_t a, int64_t b);
// The correctly rounded double nearest to a/b, as Python's int / int. Precondition: b != 0.
double truediv_i64(int64_t a, int64_t b);
// a**b modulo 2^64 by repeated squaring; a negative exponent gives 1 for base 1, +-1 for base -1, 0 otherwise.
int64_t pow_i64(int64_t a, int64_t b);

// Float forms: floordiv and remainder follow CPython's float_divmod, including its corrections for zero and infinity.
double floordiv_f64(double a, double b);
double remainder_f64(double a, double b);

// Checked forms for sizes: SymIntOverflow shows the operands when the result leaves 64 bits.
int64_t checked_add(int64_t a, int64_t b);
int64_t checked_sub(int64_t a, int64_t b);
int64_t checked_mul(int64_t a, int64_t b);
int64_t checked_neg(int64_t a);
int64_t checked_floordiv(int64_t a, int64_t b);
int64_t checked_truncdiv(int64_t a, int64_t b);
int64_t checked_pow(int64_t a, int64_t b);  // exact; a negative exponent is a UsageError

}  // namespace tutti
