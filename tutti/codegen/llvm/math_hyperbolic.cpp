#include "tutti/codegen/llvm/math_parts.h"

namespace tutti::codegen {

namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;

// Where the functions have slope 1 at 0, tiny arguments are the result.
Fp unless_small(Fp x, Fp result) { return select(abs(x) < 0x1p-29, x, result); }

// (e^a - 1) / 4 for a in [0, 710.5]: a quarter, so that no power of two overflows before the results do.
Fp quarter_expm1(Fp a) {
  const ExpReduction e = reduce_exp(a);
  const Fp quarter_power = power_of_two(a, e.shifted_n, -2);
  return fma(quarter_power, expm1_of_rest(e.rest), quarter_power - 0.25);
}

// With q = (e^|x| - 1) / 4: 2 (q + q / (4 q + 1)).
Fp sinh_f64(Fp x) {
  const Fp q = quarter_expm1(at_most(abs(x), 710.5));
  return unless_small(x, copysign((q + q / (4.0 * q + 1.0)) * 2.0, x));
}

// With h = e^|x| / 4: 2 (h + 1 / (16 h)).
Fp cosh_f64(Fp x) {
  const Fp h = quarter_expm1(at_most(abs(x), 710.5)) + 0.25;
  return (h + 0.0625 / h) * 2.0;
}

Fp asinh_f64(Fp x) {
  const Fp size = abs(x);
  const Fp square = size * size;
  const Fp sum = size + square / (1.0 + sqrt(square + 1.0));
  const Mask large = size > 0x1p28;
  const Fp log = log1p_of(select(large, size - 1.0, sum));
  return unless_small(x, copysign(select(large, log + kLn2, log), x));
}

Fp acosh_f64(Fp x) {
  const Fp t = x - 1.0;
  const Mask large = x > 0x1p28;
  const Fp log = log1p_of(select(large, t, t + sqrt(t * 2.0 + t * t)));
  return select(x < 1.0, __builtin_nan(""), select(large, log + kLn2, log));
}

Fp atanh_f64(Fp x) {
  const Fp size = abs(x);
  return unless_small(x, copysign(log1p_of(2.0 * size / (1.0 - size)) * 0.5, x));
}

}  // namespace

// With e = e^(2|x|) - 1: tanh |x| = e / (e + 2). From 10 (f32) and 20 (f64) on the result is 1.
// Max error: 2.5 ULP (f32), 2 ULP (f64).
Fp tanh_of(Fp x) {
  const Fp size = at_most(abs(x), is_f32(x) ? 10.0 : 20.0);
  const ExpReduction r = reduce_exp(size + size);
  const Fp power = power_of_two(x, r.shifted_n, 0);
  const Fp e = fma(power, expm1_of_rest(r.rest), power - 1.0);
  return copysign(quotient_with_sum(e, e, 2.0), x);
}

// Max error: 2.5 ULP (f64).
Fp sinh_of(Fp x) { return through_f64(sinh_f64, x); }
Fp cosh_of(Fp x) { return through_f64(cosh_f64, x); }
Fp asinh_of(Fp x) { return through_f64(asinh_f64, x); }
Fp acosh_of(Fp x) { return through_f64(acosh_f64, x); }
Fp atanh_of(Fp x) { return through_f64(atanh_f64, x); }

}  // namespace tutti::codegen
