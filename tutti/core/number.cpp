#include "tutti/core/number.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tutti/core/error.h"

namespace tutti {
namespace {

constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

uint64_t magnitude(int64_t a) { return a < 0 ? 0 - static_cast<uint64_t>(a) : static_cast<uint64_t>(a); }

void check_divisor(const char* op, int64_t b) {
  if (b == 0) throw IntegerDivideByZero(op);
}

[[noreturn]] void overflow(int64_t a, const char* op, int64_t b) {
  throw SymIntOverflow(fmt::format("SymIntOverflow: {} {} {} does not fit in 64 bits", a, op, b));
}

}  // namespace

int64_t truncdiv_i64(int64_t a, int64_t b) {
  return b == -1 ? static_cast<int64_t>(0 - static_cast<uint64_t>(a)) : a / b;
}

int64_t fmod_i64(int64_t a, int64_t b) { return b == -1 ? 0 : a % b; }

int64_t floordiv_i64(int64_t a, int64_t b) {
  const int64_t r = fmod_i64(a, b);
  return truncdiv_i64(a, b) - (r != 0 && (r < 0) != (b < 0));
}

int64_t remainder_i64(int64_t a, int64_t b) {
  const int64_t r = fmod_i64(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}

double truediv_i64(int64_t a, int64_t b) {
  if (a == 0) return b < 0 ? -0.0 : 0.0;
  const uint64_t n = magnitude(a), d = magnitude(b);
  const double sign = (a < 0) != (b < 0) ? -1.0 : 1.0;
  // Scale so that the integer quotient has 55 or 56 bits, keep a sticky bit for the remainder, round once.
  const int shift = 55 - (std::bit_width(n) - std::bit_width(d));
  unsigned __int128 scaled_n = n, scaled_d = d;
  if (shift >= 0) scaled_n <<= shift;
  else scaled_d <<= -shift;
  uint64_t q = static_cast<uint64_t>(scaled_n / scaled_d);
  if (scaled_n % scaled_d != 0) q |= 1;  // q has at least 55 bits, so bit 0 lies below the rounding position
  return sign * std::ldexp(static_cast<double>(q), -shift);
}

int64_t pow_i64(int64_t a, int64_t b) {
  if (b < 0) return a == 1 ? 1 : a == -1 ? (b % 2 != 0 ? -1 : 1) : 0;
  uint64_t result = 1, base = static_cast<uint64_t>(a);
  for (uint64_t e = static_cast<uint64_t>(b); e != 0; e >>= 1) {
    if (e & 1) result *= base;
    base *= base;
  }
  return static_cast<int64_t>(result);
}

double remainder_f64(double a, double b) {
  double m = std::fmod(a, b);
  if (m != 0 && (m < 0) != (b < 0)) m += b;
  return m;
}

double floordiv_f64(double a, double b) {
  if (b == 0) return a / b;
  const double m = std::fmod(a, b);
  double d = (a - m) / b;
  if (m != 0 && (b < 0) != (m < 0)) d -= 1;
  if (d == 0) return std::copysign(0.0, a / b);
  double f = std::floor(d);
  if (d - f > 0.5) f += 1;
  return f;
}

int64_t checked_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) overflow(a, "+", b);
  return r;
}

int64_t checked_sub(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_sub_overflow(a, b, &r)) overflow(a, "-", b);
  return r;
}

int64_t checked_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) overflow(a, "*", b);
  return r;
}

int64_t checked_neg(int64_t a) { return checked_sub(0, a); }

int64_t checked_floordiv(int64_t a, int64_t b) {
  check_divisor("floordiv", b);
  if (a == kMin && b == -1) overflow(a, "//", b);
  return floordiv_i64(a, b);
}

int64_t checked_truncdiv(int64_t a, int64_t b) {
  check_divisor("truncdiv", b);
  if (a == kMin && b == -1) overflow(a, "truncdiv", b);
  return truncdiv_i64(a, b);
}

int64_t checked_pow(int64_t a, int64_t b) {
  TUTTI_CHECK(b >= 0, "pow: {} ** {}: Integers to negative integer powers are not allowed.", a, b);
  if (a == 0 || a == 1) return b == 0 ? 1 : a;
  if (a == -1) return b % 2 != 0 ? -1 : 1;
  int64_t result = 1;
  for (int64_t i = 0; i < b; ++i) {  // at most 63 rounds before an overflow ends it
    if (__builtin_mul_overflow(result, a, &result)) overflow(a, "**", b);
  }
  return result;
}

}  // namespace tutti
