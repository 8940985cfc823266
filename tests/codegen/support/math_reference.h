// The reference for the emitted math functions: libm in long double, and the distance in ULP.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/kernel.h"

namespace tutti::codegen::testing {

struct MathCase {
  ScalarOp op;
  // One of the two; 64-bit mantissa, errors of a few thousandths of a double's ULP.
  long double (*unary)(long double);
  long double (*binary)(long double, long double);
  double (*quick)(double);          // unary in double: enough for measuring f32
  double max_ulp_f32, max_ulp_f64;  // the stated errors (docs/math_ulp.md)
};

std::span<const MathCase> math_cases();
const MathCase& math_case(ScalarOp op);

// |got - want| in units of the last place of `want` rounded to the type. An overflow counts as the next power of two;
// a wrong NaN or a zero with the wrong sign is infinitely far.
double ulp_distance(float got, long double want);
double ulp_distance(double got, long double want);

// Arguments that reach every part of the functions: specials in all pairs, any bit pattern, the usual ranges.
template <class T>
struct MathSample {
  std::vector<T> x, y;
};
template <class T>
MathSample<T> math_sample(ScalarOp op, int64_t count, uint64_t seed);

enum class Lanes {
  full,  // as wide as the target's registers
  one,   // scalar instructions
};

// out[i] = op(x[i], y[i]) by a compiled kernel; y is not read by unary functions. T is float or double.
template <class T>
void evaluate(ScalarOp op, CpuTarget target, Lanes lanes, const T* x, const T* y, T* out, int64_t n);

struct Worst {
  double ulp = 0.0;
  double x = 0.0, y = 0.0;
};
template <class T>
Worst worst_of(const MathCase& c, const MathSample<T>& sample, const std::vector<T>& results);

}  // namespace tutti::codegen::testing
