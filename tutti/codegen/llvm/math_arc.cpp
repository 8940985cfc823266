#include "tutti/codegen/llvm/math_coefficients.h"
#include "tutti/codegen/llvm/math_parts.h"

namespace tutti::codegen {

namespace {

constexpr double kPi = 0x1.921fb54442d18p+1, kPiLow = 0x1.1a62633145c07p-53;
constexpr double kHalfPi = 0x1.921fb54442d18p+0, kHalfPiLow = 0x1.1a62633145c07p-54;

// asin of a size in [0, 1]: the series below 1/2; above, asin a = pi/2 - 2 asin sqrt((1 - a) / 2).
struct ArcSine {
  Mask near_one;
  Fp root;      // the argument of the series
  Fp root_low;  // what rounding took from it
  Fp curve;     // series minus root
};
ArcSine arc_sine(Fp size) {
  const Mask near_one = size > 0.5;
  const Fp square = select(near_one, 0.5 - size * 0.5, size * size);
  const Fp root = sqrt(square);
  const Fp lost = fma(-root, root, square) / (root + root);
  const Fp argument = select(near_one, root, size);
  return {near_one, argument, select(near_one & (root > 0.0), lost, 0.0),
          argument * square * polynomial(square, kAsinF64)};
}

Fp asin_f64(Fp x) {
  const ArcSine a = arc_sine(abs(x));
  const Fp near_one = kHalfPi - (2.0 * a.root - (kHalfPiLow - 2.0 * (a.root_low + a.curve)));
  return copysign(select(a.near_one, near_one, a.root + a.curve), x);
}

Fp acos_f64(Fp x) {
  const ArcSine a = arc_sine(abs(x));
  const Fp low = a.root_low + a.curve;
  const Fp small = copysign(a.root, x), small_low = copysign(low, x);
  const Fp middle = kHalfPi - (small - (kHalfPiLow - small_low));
  const Fp from_pi = kPi - (2.0 * a.root - (kPiLow - 2.0 * low));
  return select(a.near_one, select(x < 0.0, from_pi, 2.0 * (a.root + low)), middle);
}

// atan t for t in [0, 1] as t + rest.
Fp atan_rest(Fp t) {
  const Fp z = t * t;
  return t * z * polynomial(z, kAtanF64);
}

// atan(small / large) with 0 <= small <= large, or pi/2 minus that, or pi minus that: turned by `base` (high and low
// part), sign says whether the angle is added or taken away.
Fp turned_atan(Fp t, Fp t_low, Mask minus, Fp base, Fp base_low) {
  const Fp rest = atan_rest(t) + t_low;
  return base + (select(minus, -t, t) + (select(minus, -rest, rest) + base_low));
}

Fp atan_f64(Fp x) {
  const Fp size = abs(x);
  const Mask steep = size > 1.0;
  const Fp t = select(steep, 1.0 / size, size);
  const Fp lost = select(steep & (size < 0x1p60), fma(-t, size, 1.0) * t, 0.0);
  const Fp turned = turned_atan(t, lost, steep, number(x, kHalfPi), number(x, kHalfPiLow));
  return copysign(select(steep, turned, t + atan_rest(t)), x);
}

Fp atan2_f64(Fp y, Fp x) {
  const Fp size_y = abs(y), size_x = abs(x);
  const Mask steep = size_y > size_x;
  const Mask left = copysign(1.0, x) < 0.0;
  const Fp small = select(steep, size_x, size_y), large = select(steep, size_y, size_x);
  // 0 / 0 is the angle 0, inf / inf that of the diagonal.
  Fp t = select(equal(large, 0.0), 0.0, small / large);
  t = select(equal(small, __builtin_inf()), 1.0, t);
  const Mask plain = (t > 0x1p-60) & (large < 0x1p960) & (large > 0x1p-900);
  const Fp lost = select(plain, fma(-t, large, small) / large, 0.0);
  const Fp base = select(steep, kHalfPi, number(x, kPi)), base_low = select(steep, kHalfPiLow, number(x, kPiLow));
  const Fp turned = turned_atan(t, lost, steep ^ left, base, base_low);
  const Fp shallow = t + (atan_rest(t) + lost);
  // Left and steep adds to pi/2; right and steep takes from it; left and shallow takes from pi.
  const Fp angle = copysign(select(steep | left, turned, shallow), y);
  return first_nan(y, x, angle);
}

}  // namespace

// Max error: 1.3 ULP (f64), 0.51 ULP (f32).
Fp asin_of(Fp x) { return through_f64(asin_f64, x); }
Fp acos_of(Fp x) { return through_f64(acos_f64, x); }
Fp atan_of(Fp x) { return through_f64(atan_f64, x); }
Fp atan2_of(Fp y, Fp x) { return through_f64(atan2_f64, y, x); }

}  // namespace tutti::codegen
