// The functions of math_*.cpp and the pieces they share. Arguments and results are f32 or f64 lanes.
//
// Functions without a note have an f32 form of their own; "through f64" ones are computed in f64 and rounded once.
#pragma once

#include "tutti/codegen/llvm/math_ir.h"

namespace tutti::codegen {

inline constexpr double kInf = __builtin_inf();

Fp exp_of(Fp x);
Fp exp2_of(Fp x);
Fp expm1_of(Fp x);
Fp sigmoid_of(Fp x);
Fp log_of(Fp x);
Fp log1p_of(Fp x);
Fp log2_of(Fp x);   // through f64
Fp log10_of(Fp x);  // through f64
Fp sin_of(Fp x);
Fp cos_of(Fp x);
Fp tan_of(Fp x);          // through f64
Fp asin_of(Fp x);         // through f64
Fp acos_of(Fp x);         // through f64
Fp atan_of(Fp x);         // through f64
Fp atan2_of(Fp y, Fp x);  // through f64
Fp tanh_of(Fp x);
Fp sinh_of(Fp x);   // through f64
Fp cosh_of(Fp x);   // through f64
Fp asinh_of(Fp x);  // through f64
Fp acosh_of(Fp x);  // through f64
Fp atanh_of(Fp x);  // through f64
Fp erf_of(Fp x);
Fp erfcx_of(Fp x);
Fp erfinv_of(Fp x);     // through f64
Fp lgamma_of(Fp x);     // through f64
Fp pow_of(Fp x, Fp y);  // through f64

// f(x) in f64, rounded to the type of x.
template <class F, class... T>
Fp through_f64(F f, Fp x, T... more) {
  return is_f32(x) ? narrow(f(widen(x), widen(more)...)) : f(x, more...);
}

// `result`, or the first NaN of a and b: which one a + b gives depends on the operand order the compiler picks.
inline Fp first_nan(Fp a, Fp b, Fp result) { return select(is_nan(a), a + a, select(is_nan(b), b + b, result)); }

// x = n log 2 + rest with |rest| <= 0.35, for n in [-1100, 1100] (f64) or [-151, 150] (f32).
struct ExpReduction {
  Fp rest;
  Fp n;
  Int shifted_n;  // n + 2 bias in the low bits, other bits above them
};
ExpReduction reduce_exp(Fp x);
Fp expm1_of_rest(Fp rest);                              // e^rest - 1, with small relative error near 0 too
Fp exp_slope(Fp rest);                                  // (e^rest - 1) / rest, good enough where 1 follows
Fp one_plus_scaled(const ExpReduction& e, Fp slope);    // (1 + rest slope) 2^n, denormal or infinite where it is
Fp power_of_two(Fp like, Int shifted_n, int64_t plus);  // 2^(n + plus), which must be a normal number

// Two numbers whose exact sum is the value.
struct Pair {
  Fp high;
  Fp low;
};
Fp quotient_with_sum(Fp a, Fp small, double large);  // a / (small + large)

// x = 2^k m of a positive finite x, with m - 1 = fraction; of other x anything finite.
struct LogReduction {
  Fp k;
  Fp fraction;   // in [-1/3, 1/3] (f32) or [sqrt(1/2) - 1, sqrt(2) - 1] (f64)
  Int biased_k;  // of x times 2^24 or 2^54 when x is denormal
};
LogReduction reduce_log(Fp x);

// sin and cos of high + low in [-0.8, 0.8].
Fp sin_of_rest(Pair r);
Fp cos_of_rest(Pair r);

// x = n pi/2 + high + low for any finite f64 lane of size 2^16 or more.
struct AngleReduction {
  Fp quadrant;  // n mod 4
  Pair rest;
};
AngleReduction reduce_big_angle(Fp x);

}  // namespace tutti::codegen
