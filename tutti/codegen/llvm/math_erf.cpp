#include "tutti/codegen/llvm/math_coefficients.h"
#include "tutti/codegen/llvm/math_parts.h"

namespace tutti::codegen {

namespace {

// Giles, "Approximating the erfinv function" (2010): erfinv x = x p(w), w = -log(1 - x^2), in three ranges of w; from
// the second on in the root of w, because erfinv grows like it.
Fp erfinv_f64(Fp x) {
  constexpr double kCenterEnd = 6.25, kMiddleEnd = 16.0;
  const Fp w = -log_of((1.0 - x) * (1.0 + x));
  const Mask center = w < kCenterEnd, middle = w < kMiddleEnd;
  const Fp root = sqrt(w);
  const Fp argument = select(center, w - 3.125, root - select(middle, number(x, 3.25), 5.0));
  const Fp tail = polynomial(argument, middle, kErfinvMiddleF64, kErfinvFarF64);
  const Fp result = x * select(center, polynomial(argument, kErfinvF64), tail);
  const Fp with_ends = select(equal(abs(x), 1.0), x * __builtin_inf(), result);
  return select(is_nan(x), x + x, with_ends);  // the product of two NaNs could be either
}

}  // namespace

// x + x p(x^2) near 0; 1 - exp(-t - t p(t)) with t = |x| beyond. From the clamp on the result rounds to 1.
// Max error: 1.1 ULP.
Fp erf_of(Fp x) {
  const bool single = is_f32(x);
  const Fp size = abs(x);
  const Fp t = at_most(size, single ? 3.95 : 5.95);
  const Fp square = x * x;
  const Fp center = fma(x, single ? polynomial(square, kErfF32) : polynomial(square, kErfF64), x);
  const Fp exponent = fma(t, single ? polynomial(t, kErfTailF32) : polynomial(t, kErfTailF64), t);
  const ExpReduction e = reduce_exp(-exponent);
  const Fp power = power_of_two(x, e.shifted_n, 0);
  const Fp complement = fma(power * e.rest, exp_slope(e.rest), power);
  return select(size < (single ? 0.92 : 0.9), center, copysign(1.0 - complement, x));
}

// exp(x^2) (1 - erf x): p(q) / (1 + 2 t) with t = |x| and q = (t - 3) / (t + 3); below zero 2 exp(x^2) less that, with
// the rounding error of the square put back into the exponential. Max error: 4 ULP.
Fp erfcx_of(Fp x) {
  constexpr double kFlat = 1e17;  // q is 1 from here on
  const Fp t = abs(x), near = at_most(t, kFlat), q = (near - 3.0) / (near + 3.0);
  const Fp tail = (is_f32(x) ? polynomial(q, kErfcxF32) : polynomial(q, kErfcxF64)) * 0.5 / (t + 0.5);
  const Fp square = x * x, power = exp_of(square);
  const Fp corrected = select(power < __builtin_inf(), fma(power, fma(x, x, -square), power), power);
  return select(is_nan(x), x + x, select(x < 0.0, fma(corrected, 2.0, -tail), tail));
}

// Max error: 2.3 ULP (f64).
Fp erfinv_of(Fp x) { return through_f64(erfinv_f64, x); }

}  // namespace tutti::codegen
