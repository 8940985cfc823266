#include "tutti/codegen/llvm/math_coefficients.h"
#include "tutti/codegen/llvm/math_parts.h"

namespace tutti::codegen {

namespace {

constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
// pi / 2 as the sum of three numbers of the type.
constexpr double kHalfPi64[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54, -0x1.f1976b7ed8fbcp-110};
constexpr double kHalfPi32[] = {0x1.921fb6p+0, -0x1.777a5cp-25, -0x1.ee59dap-50};
// Up to here the three numbers suffice and n fits the mantissa with room to spare.
constexpr double kSmallAngle64 = 0x1p28, kSmallAngle32 = 0x1p16;

struct Angle {
  Int quadrant;  // in the two lowest bits
  Pair rest;
};

// x = n pi/2 + rest for small angles. The first product cancels exactly. The second is taken away with its own rounding
// error and that of the difference; `first` is a multiple of its last bit, so three operations give the latter exactly.
AngleReduction reduce_small_angle(Fp x) {
  const double* c = is_f32(x) ? kHalfPi32 : kHalfPi64;
  const double magic = layout(x).round_magic;
  const Fp n = fma(x, is_f32(x) ? double(float(kTwoOverPi)) : kTwoOverPi, magic) - magic;
  const Fp first = fma(n, -c[0], x);
  const Fp second = n * c[1];
  const Fp second_low = fma(n, c[1], -second);
  const Fp high = first - second;
  const Fp lost = first - high - second;
  return {n, {high, fma(n, -c[2], lost - second_low)}};
}

AngleReduction reduce_big_angle_of_type(Fp x) {
  if (!is_f32(x)) return reduce_big_angle(x);
  const AngleReduction wide = reduce_big_angle(widen(x));
  const Fp high = narrow(wide.rest.high);
  return {narrow(wide.quadrant), {high, narrow(wide.rest.high - widen(high) + wide.rest.low)}};
}

Angle reduce_angle(Fp x) {
  const AngleReduction small = reduce_small_angle(x);
  const Mask big = abs(x) > (is_f32(x) ? kSmallAngle32 : kSmallAngle64);
  const auto r = replace_rare(big, {small.quadrant, small.rest.high, small.rest.low}, [&] {
    const AngleReduction a = reduce_big_angle_of_type(x);
    // Infinity has no angle.
    const Fp high = select(equal(abs(x), __builtin_inf()), __builtin_nan(""), a.rest.high);
    return std::vector<Fp>{a.quadrant, high, a.rest.low};
  });
  return {bits(r[0] + layout(x).round_magic), {r[1], r[2]}};
}

Mask bit_set(Int value, int64_t bit) { return equal(value & bit, bit); }

// `value` negated where bit 1 of the quadrant is set.
Fp with_quadrant_sign(Fp value, Int quadrant) {
  return from_bits(bits(value) ^ ((quadrant & 2) << (is_f32(value) ? 30 : 62)));
}

Pair sin_pair(Pair r) {
  const Fp z = r.high * r.high;
  const Fp p = is_f32(z) ? polynomial(z, kSinF32) : polynomial(z, kSinF64);
  return {r.high, fma(r.high * z, p, r.low)};
}

Pair cos_pair(Pair r) {
  const Fp z = r.high * r.high;
  const Fp p = is_f32(z) ? polynomial(z, kCosF32) : polynomial(z, kCosF64);
  const Fp half = z * 0.5;
  const Fp sum = 1.0 - half;
  return {sum, 1.0 - sum - half + fma(z * z, p, -(r.high * r.low))};
}

Pair normalized(Pair p) {
  const Fp sum = p.high + p.low;
  return {sum, p.high - sum + p.low};
}

Fp tan_f64(Fp x) {
  const Angle a = reduce_angle(x);
  const Pair s = normalized(sin_pair(a.rest)), c = normalized(cos_pair(a.rest));
  const Mask odd = bit_set(a.quadrant, 1);
  const Pair above{select(odd, -c.high, s.high), select(odd, -c.low, s.low)};
  const Pair below{select(odd, s.high, c.high), select(odd, s.low, c.low)};
  const Fp quotient = above.high / below.high;
  const Fp left = fma(-quotient, below.high, above.high) + fma(-quotient, below.low, above.low);
  const Fp tangent = quotient + left / below.high;
  return select(abs(x) < 0x1p-27, x, tangent);
}

}  // namespace

Fp sin_of_rest(Pair r) {
  const Pair s = sin_pair(r);
  return s.high + s.low;
}

Fp cos_of_rest(Pair r) {
  const Pair c = cos_pair(r);
  return c.high + c.low;
}

// Max error: 0.9 ULP (f32), 1.1 ULP (f64), any size of x.
Fp sin_of(Fp x) {
  const Angle a = reduce_angle(x);
  const Fp value = select(bit_set(a.quadrant, 1), cos_of_rest(a.rest), sin_of_rest(a.rest));
  return select(abs(x) < (is_f32(x) ? 0x1p-13 : 0x1p-27), x, with_quadrant_sign(value, a.quadrant));
}

// Max error: 0.9 ULP (f32), 1.1 ULP (f64), any size of x. The cosine is the sine one quadrant later.
Fp cos_of(Fp x) {
  const Angle a = reduce_angle(x);
  const Fp value = select(bit_set(a.quadrant, 1), sin_of_rest(a.rest), cos_of_rest(a.rest));
  return with_quadrant_sign(value, a.quadrant + 1);
}

// Max error: 1.6 ULP (f64), any size of x.
Fp tan_of(Fp x) { return through_f64(tan_f64, x); }

}  // namespace tutti::codegen
