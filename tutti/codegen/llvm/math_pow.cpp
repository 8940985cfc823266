#include "tutti/codegen/llvm/math_coefficients.h"
#include "tutti/codegen/llvm/math_parts.h"

namespace tutti::codegen {

namespace {

// log 2; the high part has 42 bits, so a multiple by an exponent is exact.
constexpr double kLn2High = 0x1.62e42fefa38p-1, kLn2Low = 0x1.ef35793c7673p-45;
constexpr double kTwoThirds = 0x1.5555555555555p-1, kTwoThirdsLow = 0x1.5555555555555p-55;

// log x of a positive finite x, to about 2^-65 of its size: with s = (m - 1) / (m + 1), z = s^2,
// log m = s (2 + z (2/3 + z p(z))), all but the last term in two numbers.
Pair log_pair(Fp x) {
  const LogReduction r = reduce_log(x);
  const Fp f = r.fraction;
  const Fp sum = f + 2.0;
  const Fp sum_low = 2.0 - sum + f;
  const Fp s = f / sum;
  const Fp s_low = (fma(-s, sum, f) - s * sum_low) / sum;
  const Fp z = s * s;
  const Fp z_low = fma(s, s, -z) + 2.0 * s * s_low;
  const Fp tail = z * polynomial(z, kPowLogF64);
  const Fp v = tail + kTwoThirds;
  const Fp v_low = kTwoThirds - v + tail + kTwoThirdsLow;
  const Fp w = v * z;
  const Fp w_low = fma(v, z, -w) + fma(v, z_low, v_low * z);
  const Fp g = w + 2.0;
  const Fp g_low = 2.0 - g + w + w_low;
  const Fp log = s * g;
  const Fp log_low = fma(s, g, -log) + fma(s, g_low, s_low * g);
  const Fp whole = r.k * kLn2High;
  const Fp high = whole + log;
  return {high, whole - high + log + fma(r.k, kLn2Low, log_low)};
}

// e^(high + low)
Fp exp_of_pair(Pair p) {
  ExpReduction e = reduce_exp(at_most(at_least(p.high, -746.0), 710.0));
  // Clamped and infinite lanes have no low part worth adding.
  e.rest = e.rest + select(abs(p.high) < 746.0, p.low, 0.0);
  return one_plus_scaled(e, exp_slope(e.rest));
}

// |x|^y where neither side is special: in two numbers, or in one when the result is rounded to f32.
Fp power_of_size(Fp size, Fp y, bool accurate) {
  const Mask zero = equal(size, 0.0), infinite = equal(size, kInf);
  const Pair log = accurate ? log_pair(size) : Pair{log_of(size), number(size, 0.0)};
  const Fp high = select(zero, -kInf, select(infinite, kInf, log.high));
  const Fp product = high * y;
  const Fp product_low = fma(high, y, -product) + log.low * y;
  return exp_of_pair({product, product_low});
}

// The special values of C99 F.9.4.4 around |x|^y.
Fp pow_f64(Fp x, Fp y, bool accurate) {
  const Fp size = abs(x);
  const Fp half = y * 0.5;
  const Mask integer = equal(floor(y), y), even = equal(floor(half), half);
  const Mask odd = integer & !even;
  const Mask negative = copysign(1.0, x) < 0.0;

  Fp result = select(equal(size, 1.0), 1.0, power_of_size(size, y, accurate));
  result = select(odd & negative, -result, result);
  const Mask no_result = (x < 0.0) & (size < kInf) & !integer;
  result = select(no_result, __builtin_nan(""), result);
  result = first_nan(x, y, result);
  return select(equal(y, 0.0) | equal(x, 1.0), 1.0, result);
}

}  // namespace

// Max error: 1.1 ULP (f64), 0.51 ULP (f32).
Fp pow_of(Fp x, Fp y) { return is_f32(x) ? narrow(pow_f64(widen(x), widen(y), false)) : pow_f64(x, y, true); }

}  // namespace tutti::codegen
