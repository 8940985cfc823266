#include "tutti/codegen/llvm/math_coefficients.h"
#include "tutti/codegen/llvm/math_parts.h"

namespace tutti::codegen {

namespace {

constexpr double kLog2E = 0x1.71547652b82fep0;
// log 2 as the sum of two numbers of the type.
constexpr double kLn2High64 = 0x1.62e42fefa39efp-1, kLn2Low64 = 0x1.abc9e3b39803fp-56;
constexpr double kLn2High32 = 0x1.62e43p-1, kLn2Low32 = -0x1.05c61p-29;

// Below `low` the result rounds to zero, above `high` it overflows.
struct Range {
  double low, high;
};
Fp clamped(Fp x, Range f32, Range f64) {
  const Range range = is_f32(x) ? f32 : f64;
  return at_most(at_least(x, range.low), range.high);
}

double shifting_magic(Fp x) { return layout(x).round_magic + 2.0 * static_cast<double>(layout(x).bias); }

// Tiny arguments are the result of functions with slope 1 at 0; this keeps -0 and denormals as they are.
Fp unless_tiny(Fp x, Fp result) { return select(abs(x) < layout(x).smallest_normal * 0x1p30, x, result); }

}  // namespace

ExpReduction reduce_exp(Fp x) {
  const bool single = is_f32(x);
  const double magic = shifting_magic(x);
  const Fp shifted = fma(x, single ? double(float(kLog2E)) : kLog2E, magic);
  const Fp n = shifted - magic;
  const Fp rest = fma(n, single ? -kLn2Low32 : -kLn2Low64, fma(n, single ? -kLn2High32 : -kLn2High64, x));
  return {rest, n, bits(shifted)};
}

Fp expm1_of_rest(Fp r) {
  const Fp p = is_f32(r) ? polynomial(r, kExpm1F32) : polynomial(r, kExpF64);
  return fma(r * r, p, r);
}

Fp exp_slope(Fp r) { return fma(r, is_f32(r) ? polynomial(r, kExpF32) : polynomial(r, kExpF64), 1.0); }

// Without the instruction for it, two factors, because 2^n itself may be no normal number; the second product rounds to
// the result. The pattern holds n + 2 bias, so its halves are the biased exponents of the factors; what lies above them
// leaves with the shift. The bits are the same, because products by the first factor are exact next to a sum near 1.
Fp one_plus_scaled(const ExpReduction& e, Fp slope) {
  if (has_times_power_of_two(e.rest)) return times_power_of_two(fma(e.rest, slope, 1.0), e.n);
  const int mantissa = layout(e.rest).mantissa_bits;
  const Int half = e.shifted_n >> 1;
  const Fp factor = from_bits(half << mantissa);
  return fma(e.rest * factor, slope, factor) * from_bits((e.shifted_n - half) << mantissa);
}

// f32 divides by the rounded sum; f64 takes back what the roundings of sum and quotient lost.
Fp quotient_with_sum(Fp a, Fp small, double large) {
  const Fp sum = small + large;
  if (is_f32(a)) return a / sum;
  const Fp sum_low = small - (sum - large);
  const Fp inverse = 1.0 / sum;
  const Fp quotient = a * inverse;
  return fma(fma(-sum_low, quotient, fma(-quotient, sum, a)), inverse, quotient);
}

Fp power_of_two(Fp like, Int shifted_n, int64_t plus) {
  return from_bits((shifted_n + (plus - layout(like).bias)) << layout(like).mantissa_bits);
}

// Max error: 0.9 ULP.
Fp exp_of(Fp x) {
  const ExpReduction e = reduce_exp(clamped(x, {-104.0, 89.0}, {-746.0, 710.0}));
  return one_plus_scaled(e, exp_slope(e.rest));
}

// Max error: 0.9 ULP. Exact at integers.
Fp exp2_of(Fp x) {
  x = clamped(x, {-151.0, 129.0}, {-1076.0, 1025.0});
  const double magic = shifting_magic(x);
  const Fp shifted = x + magic;
  const Fp n = shifted - magic;
  const ExpReduction e{x - n, n, bits(shifted)};
  return one_plus_scaled(e, is_f32(x) ? polynomial(e.rest, kExp2F32) : polynomial(e.rest, kExp2F64));
}

// e^x - 1 = 2 (2^(n-1) (e^rest - 1) + (2^(n-1) - 1/2)); half of the result never overflows before it does.
// Max error: 1.5 ULP (f32), 1.9 ULP (f64).
Fp expm1_of(Fp x) {
  const ExpReduction e = reduce_exp(clamped(x, {-20.0, 89.0}, {-40.0, 710.0}));
  const Fp half_power = power_of_two(x, e.shifted_n, -1);
  return unless_tiny(x, fma(half_power, expm1_of_rest(e.rest), half_power - 0.5) * 2.0);
}

// 1 / (1 + e^-x), from e^-|x| so that the small side keeps its digits down to denormals.
// Max error: 2.5 ULP (f32), 1.6 ULP (f64).
Fp sigmoid_of(Fp x) {
  const Fp size = abs(x);
  const ExpReduction e = reduce_exp(at_least(-size, is_f32(x) ? -104.0 : -746.0));
  const Fp power = one_plus_scaled(e, exp_slope(e.rest));
  return quotient_with_sum(select(x < 0.0, power, 1.0), power, 1.0);
}

}  // namespace tutti::codegen
