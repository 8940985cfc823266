#include "tutti/codegen/llvm/math_coefficients.h"
#include "tutti/codegen/llvm/math_parts.h"

namespace tutti::codegen {

namespace {

constexpr double kNan = __builtin_nan("");
constexpr double kLn2High64 = 0x1.62e42fefa39efp-1, kLn2Low64 = 0x1.abc9e3b39803fp-56;
constexpr double kLn2High32 = 0x1.62e43p-1, kLn2Low32 = -0x1.05c61p-29;
constexpr double kInvLn2High = 0x1.71547652b82fep0, kInvLn2Low = 0x1.777d0ffda0d24p-56;
constexpr double kInvLn10High = 0x1.bcb7b1526e50ep-2, kInvLn10Low = 0x1.95355baaafad3p-57;
// log10(2); the high part has 42 bits, so a multiple by an exponent is exact.
constexpr double kLog10Of2High = 0x1.34413509f78p-2, kLog10Of2Low = 0x1.fef311f12b358p-46;

// The pattern of the smallest mantissa m: 2/3 (f32), sqrt(1/2) (f64).
int64_t cut(Fp x) { return is_f32(x) ? 0x3f2aaaab : 0x3fe6a09e667f3bcd; }

// The logarithm for x that have none by the formula: 0 gives -inf, negative NaN, infinity and NaN themselves.
// x + x makes every NaN a quiet one, as arithmetic does.
Fp with_limits(Fp x, Fp result) {
  result = select(x < kInf, result, x + x);
  return select(x <= 0.0, select(equal(x, 0.0), number(x, -kInf), kNan), result);
}

// log m = fraction - square / 2 + rest, where rest = s (square / 2 + z p(z)).
struct MantissaLog {
  Fp half_square;
  Fp rest;
};
MantissaLog mantissa_log(Fp fraction) {
  const Fp s = fraction / (fraction + 2.0);
  const Fp z = s * s;
  const Fp half_square = fraction * 0.5 * fraction;
  return {half_square, s * fma(z, polynomial(z, kLogF64), half_square)};
}

// k log 2 + log(1 + fraction)
Fp combined_log(Fp k, Fp fraction) {
  if (is_f32(fraction)) {
    const Fp curve = fma(fraction, polynomial(fraction, kLogF32), -0.5);
    const Fp small = fma(fraction * fraction, curve, k * kLn2Low32);
    return fma(k, kLn2High32, fraction + small);
  }
  const MantissaLog m = mantissa_log(fraction);
  return fma(k, kLn2High64, fraction - (m.half_square - fma(k, kLn2Low64, m.rest)));
}

// log(1 + fraction) = high + low, to about 2^-60.
Pair mantissa_log_pair(Fp fraction) {
  const MantissaLog m = mantissa_log(fraction);
  const Fp high = fraction - m.half_square;
  return {high, fraction - high - m.half_square + m.rest};
}

// whole + log(1 + fraction) (c_high + c_low) + small
Fp scaled_log(Fp whole, Fp fraction, double c_high, double c_low, Term small) {
  const Pair log = mantissa_log_pair(fraction);
  const Fp product = log.high * c_high;
  const Fp product_low = fma(log.high, c_high, -product) + fma(log.high, c_low, log.low * c_high) + small;
  const Fp sum = whole + product;
  return sum + (whole - sum + product + product_low);
}

Fp log2_f64(Fp x) {
  const LogReduction r = reduce_log(x);
  return with_limits(x, scaled_log(r.k, r.fraction, kInvLn2High, kInvLn2Low, 0.0));
}

Fp log10_f64(Fp x) {
  const LogReduction r = reduce_log(x);
  const Fp whole = r.k * kLog10Of2High;
  return with_limits(x, scaled_log(whole, r.fraction, kInvLn10High, kInvLn10Low, r.k * kLog10Of2Low));
}

}  // namespace

LogReduction reduce_log(Fp x) {
  const FloatLayout& type = layout(x);
  const int lift = is_f32(x) ? 24 : 54;
  const double one = static_cast<double>(int64_t{1} << type.mantissa_bits);
  const Mask denormal = x < type.smallest_normal;
  const Fp normal = select(denormal, x * static_cast<double>(int64_t{1} << lift), x);
  const Int pattern = bits(normal) + ((type.bias << type.mantissa_bits) - cut(x));
  const Int biased_k = pattern >> type.mantissa_bits;
  const Int mantissa = (pattern & ((int64_t{1} << type.mantissa_bits) - 1)) + cut(x);
  // The integer below the mantissa of 2^mantissa_bits is that number plus the integer: a conversion without one.
  const Int as_number = biased_k | ((type.bias + type.mantissa_bits) << type.mantissa_bits);
  const double offset = one + static_cast<double>(type.bias);
  const Fp k = from_bits(as_number) - select(denormal, number(x, offset + lift), offset);
  return {k, from_bits(mantissa) - 1.0, biased_k};
}

// Max error: 0.85 ULP.
Fp log_of(Fp x) {
  const LogReduction r = reduce_log(x);
  return with_limits(x, combined_log(r.k, r.fraction));
}

// log(1 + x): the rounding error of 1 + x, scaled like its mantissa, goes into the fraction.
// Max error: 1.6 ULP (f32), 1.4 ULP (f64).
Fp log1p_of(Fp x) {
  const FloatLayout& type = layout(x);
  const Fp u = x + 1.0;
  const Fp back = u - 1.0;
  const Fp error = 1.0 - (u - back) + (x - back);
  const LogReduction r = reduce_log(u);
  const Fp scale = from_bits((2 * type.bias - r.biased_k) << type.mantissa_bits);  // 2^-k
  const Fp lost = select(u < 0x1p100, error * scale, 0.0);
  return select(equal(x, 0.0), x, with_limits(u, combined_log(r.k, r.fraction + lost)));
}

// Max error: 0.8 ULP (f64). Powers of two and of ten are exact.
Fp log2_of(Fp x) { return through_f64(log2_f64, x); }
Fp log10_of(Fp x) { return through_f64(log10_f64, x); }

}  // namespace tutti::codegen
