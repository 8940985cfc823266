#include "tutti/codegen/llvm/math_coefficients.h"
#include "tutti/codegen/llvm/math_parts.h"

namespace tutti::codegen {

namespace {

constexpr double kPi = 0x1.921fb54442d18p+1;
constexpr double kLogPi = 0x1.250d048e7a1bdp+0;
constexpr double kHalfLog2PiMinusHalf = 0x1.acfe390c97d69p-2;  // (log(2 pi) - 1) / 2

// lgamma of a > 0. Below 3/4: lgamma(1 + a) - log a. From 3 to 8: lgamma(y) + log of the factors that lead from y in
// [2, 3) to a, all terms of one sign. From 8 on Stirling's series. In between polynomials that vanish at 1 and 2.
Fp lgamma_positive(Fp a) {
  const Mask small = a < 0.75, large = a >= 8.0;
  Fp factors = number(a, 1.0), y = a;
  for (int k = 1; k <= 5; ++k) {
    const Fp lower = a - static_cast<double>(k);
    const Mask used = lower >= 2.0;
    factors = factors * select(used, lower, 1.0);
    y = select(used, lower, y);
  }
  const Fp log = log_of(select(large | small, a, factors));

  const Mask near_one = select(small, a + 1.0, y) < 1.5;
  const Fp distance = select(near_one, select(small, a, y - 1.0), select(small, a - 1.0, y - 2.0));
  const Fp base = distance * polynomial(distance, near_one, kLgammaOneF64, kLgammaTwoF64);
  const Fp below = select(small, base - log, base + log);

  const Fp inverse = 1.0 / a;
  const Fp series = fma(inverse, polynomial(inverse * inverse, kStirlingF64), kHalfLog2PiMinusHalf);
  const Fp above = fma(a - 0.5, log - 1.0, series);
  return select(large, above, below);
}

// |sin(pi a)|
Fp sine_of_half_turns(Fp a) {
  const Fp r = abs(a - round_even(a));
  const Mask steep = r > 0.25;
  const Pair angle{select(steep, 0.5 - r, r) * kPi, number(a, 0.0)};
  return select(steep, cos_of_rest(angle), sin_of_rest(angle));
}

// log |gamma(x)|; for x < 0 by gamma(x) gamma(-x) = -pi / (x sin(pi x)).
Fp lgamma_f64(Fp x) {
  const Fp a = abs(x);
  const Fp positive = lgamma_positive(a);
  const Fp reflected = kLogPi - log_of(a * sine_of_half_turns(a)) - positive;
  const Fp signed_result = select(x < 0.0, reflected, positive);
  const Fp result = select(a < 0x1p-60, -log_of(a), signed_result);
  return select(equal(a, kInf), a, result);
}

}  // namespace

// Max error: 3 ULP (f64) for x > 0; near its zeros at negative x the absolute error is that of its terms.
Fp lgamma_of(Fp x) { return through_f64(lgamma_f64, x); }

}  // namespace tutti::codegen
