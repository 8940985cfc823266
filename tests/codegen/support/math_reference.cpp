#include "tests/codegen/support/math_reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tests/codegen/support/harness.h"

#include "tutti/codegen/cpu_target.h"

namespace tutti::codegen::testing {

namespace {

long double sigmoid(long double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }
double sigmoid_quick(double x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

// Threads measure at once, and lgamma writes a global.
long double log_gamma(long double x) {
  int sign;
  return lgammal_r(x, &sign);
}
double log_gamma_quick(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

// The asymptotic series from where exp(x^2) and erfc leave the range of the type.
long double erfcx(long double x) {
  if (x < 100) return std::exp(x * x) * std::erfc(x);
  const long double w = 0.5L / x / x;  // in this order, for large x
  return (1 - w * (1 - 3 * w * (1 - 5 * w * (1 - 7 * w * (1 - 9 * w))))) / x *
         0.56418958354775628694807945156077L;  // 1 / sqrt(pi)
}
double erfcx_quick(double x) { return static_cast<double>(erfcx(x)); }

// Halley's iteration on erf (small results) or erfc, from the leading term of the tail.
long double erfinv(long double x) {
  const long double a = std::fabs(x);
  if (!(a <= 1)) return std::numeric_limits<long double>::quiet_NaN();
  if (a == 1) return x * std::numeric_limits<long double>::infinity();
  const long double slope = 1.1283791670955125738961589L;  // 2 / sqrt(pi)
  const long double w = -std::log((1 - a) * (1 + a));
  long double y = a < 0.9L ? a / slope * (1 + w / 4) : std::sqrt(w - std::log(std::max(1.0L, 3.14L * w)) / 2);
  for (int step = 0; step < 6; ++step) {
    const long double error = a < 0.5L ? std::erf(y) - a : (1 - a) - std::erfc(y);
    const long double newton = error / (slope * std::exp(-y * y));
    y -= newton / (1 + y * newton);
  }
  return std::copysign(y, x);
}
double erfinv_quick(double x) { return static_cast<double>(erfinv(x)); }

// The overloads of <cmath>, as plain functions.
#define TUTTI_MATH_CASE(name, f32, f64)                                                 \
  MathCase {                                                                            \
    ScalarOp::name, [](long double x) -> long double { return std::name(x); }, nullptr, \
        [](double x) -> double { return std::name(x); }, f32, f64                       \
  }

const MathCase kCases[] = {
    TUTTI_MATH_CASE(exp, 0.9, 0.9),
    TUTTI_MATH_CASE(exp2, 0.9, 0.8),
    TUTTI_MATH_CASE(expm1, 1.5, 1.9),
    TUTTI_MATH_CASE(log, 0.85, 0.85),
    TUTTI_MATH_CASE(log2, 0.51, 0.8),
    TUTTI_MATH_CASE(log10, 0.51, 0.8),
    TUTTI_MATH_CASE(log1p, 1.6, 1.4),
    TUTTI_MATH_CASE(sin, 0.9, 1.1),
    TUTTI_MATH_CASE(cos, 0.9, 1.1),
    TUTTI_MATH_CASE(tan, 0.51, 1.6),
    TUTTI_MATH_CASE(asin, 0.51, 1.2),
    TUTTI_MATH_CASE(acos, 0.51, 0.9),
    TUTTI_MATH_CASE(atan, 0.51, 1.3),
    TUTTI_MATH_CASE(sinh, 0.51, 2.5),
    TUTTI_MATH_CASE(cosh, 0.51, 1.6),
    TUTTI_MATH_CASE(tanh, 2.5, 2.0),
    TUTTI_MATH_CASE(asinh, 0.51, 2.0),
    TUTTI_MATH_CASE(acosh, 0.51, 2.2),
    TUTTI_MATH_CASE(atanh, 0.51, 2.0),
    TUTTI_MATH_CASE(erf, 1.1, 1.1),
    {ScalarOp::erfcx, erfcx, nullptr, erfcx_quick, 4, 4},
    {ScalarOp::erfinv, erfinv, nullptr, erfinv_quick, 0.51, 2.3},
    {ScalarOp::sigmoid, sigmoid, nullptr, sigmoid_quick, 2.5, 1.6},
    {ScalarOp::lgamma, log_gamma, nullptr, log_gamma_quick, 0.51, 3.0},
    {ScalarOp::pow, nullptr, [](long double x, long double y) { return std::pow(x, y); }, nullptr, 0.51, 1.1},
    {ScalarOp::atan2, nullptr, [](long double y, long double x) { return std::atan2(y, x); }, nullptr, 0.51, 1.3},
};
#undef TUTTI_MATH_CASE

template <class T>
double distance(T got, long double want) {
  constexpr double kFar = std::numeric_limits<double>::infinity();
  using Limits = std::numeric_limits<T>;
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0.0 : kFar;
  if ((got == 0 || want == 0) && std::signbit(got) != std::signbit(want)) return kFar;
  const long double overflow = std::ldexp(1.0L, Limits::max_exponent);
  const auto clipped = [&](long double v) { return std::clamp(v, -overflow, overflow); };
  const int binade = want == 0 ? Limits::min_exponent : std::ilogb(clipped(want)) + 1;
  const int exponent = std::clamp(binade, Limits::min_exponent, Limits::max_exponent);
  const long double unit = std::ldexp(1.0L, exponent - Limits::digits);
  return static_cast<double>(std::fabs(clipped(got) - clipped(want)) / unit);
}

template <class T>
constexpr DType kDType = std::is_same_v<T, float> ? DType::f32 : DType::f64;

KernelSpec one_op(ScalarOp op, DType dtype, Lanes lanes) {
  // A value that is the same along the row is computed once, as a scalar.
  const StrideClass inner = lanes == Lanes::full ? StrideClass::contiguous : StrideClass::broadcast;
  Recipe recipe;
  const Expr x = recipe.input(dtype, inner);
  recipe.output(arity_of(op) == 1 ? apply_scalar(op, x) : apply_scalar(op, x, recipe.input(dtype, inner)), dtype);
  return recipe.finish("math");
}

}  // namespace

std::span<const MathCase> math_cases() { return kCases; }

const MathCase& math_case(ScalarOp op) { return *std::ranges::find(kCases, op, &MathCase::op); }

double ulp_distance(float got, long double want) { return distance(got, want); }
double ulp_distance(double got, long double want) { return distance(got, want); }

template <class T>
MathSample<T> math_sample(ScalarOp op, int64_t count, uint64_t seed) {
  using Limits = std::numeric_limits<T>;
  std::vector<T> special = {0, 1, 2, 3, 4, T(0.5), T(2.5), T(1e-3), T(0.99999), T(1.00001), T(1e15), T(3e16)};
  special.insert(special.end(), {Limits::infinity(), Limits::quiet_NaN(), Limits::min(), Limits::max()});
  special.push_back(Limits::denorm_min());
  for (size_t k = special.size(); k-- > 0;) special.push_back(-special[k]);
  MathSample<T> sample;
  for (const T y : special) {
    for (const T x : special) {
      sample.x.push_back(x);
      sample.y.push_back(y);
    }
  }
  const double wide = sizeof(T) == 4 ? 110.0 : 750.0;
  const auto random = [&] { return seed = mix(seed + 1); };
  const auto uniform = [&](double half_width) {
    return (static_cast<double>(random() >> 11) * 0x1p-52 - 1.0) * half_width;
  };
  const auto pattern = [&] {
    if constexpr (sizeof(T) == 4) return std::bit_cast<float>(static_cast<uint32_t>(random()));
    else return std::bit_cast<double>(random());
  };
  while (static_cast<int64_t>(sample.x.size()) < count) {
    const uint64_t kind = random() % 16;
    const T x = kind % 4 == 0 ? pattern() : static_cast<T>(uniform(kind % 4 == 1 ? wide : kind % 4 == 2 ? 2.0 : 12.0));
    // For powers, exponents that are small integers, and ones that keep the result in range.
    const double in_range = op == ScalarOp::pow && x > 0 && x != 1 ? wide / std::log(static_cast<double>(x)) : 1.0;
    const T y = kind / 4 == 0   ? pattern()
                : kind / 4 == 1 ? static_cast<T>(uniform(30.0))
                : kind / 4 == 2 ? static_cast<T>(std::round(uniform(20.0)))
                                : static_cast<T>(uniform(in_range));
    sample.x.push_back(x);
    sample.y.push_back(y);
  }
  return sample;
}
template MathSample<float> math_sample(ScalarOp, int64_t, uint64_t);
template MathSample<double> math_sample(ScalarOp, int64_t, uint64_t);

template <class T>
void evaluate(ScalarOp op, CpuTarget target, Lanes lanes, const T* x, const T* y, T* out, int64_t n) {
  const KernelSpec spec = one_op(op, kDType<T>, lanes);
  const bool rows = lanes == Lanes::one;
  std::vector<OperandCall> operands;
  const auto add = [&](const T* data) { operands.push_back({.data = const_cast<T*>(data), .outer = rows ? 1 : 0}); };
  add(x);
  if (arity_of(op) == 2) add(y);
  add(out);
  uint32_t error = 0;
  const KernelCall call{.operands = operands.data(),
                        .params = nullptr,
                        .n_outer = rows ? n : 1,
                        .n_inner = rows ? 1 : n,
                        .error = &error};
  compile_for(spec, target).entry(&call);
}
template void evaluate(ScalarOp, CpuTarget, Lanes, const float*, const float*, float*, int64_t);
template void evaluate(ScalarOp, CpuTarget, Lanes, const double*, const double*, double*, int64_t);

template <class T>
Worst worst_of(const MathCase& c, const MathSample<T>& sample, const std::vector<T>& results) {
  Worst worst;
  for (size_t i = 0; i < results.size(); ++i) {
    const T x = sample.x[i], y = sample.y[i];
    const double ulp = ulp_distance(results[i], c.unary ? c.unary(x) : c.binary(x, y));
    if (ulp > worst.ulp) worst = {ulp, x, c.unary ? 0.0 : y};
  }
  return worst;
}
template Worst worst_of(const MathCase&, const MathSample<float>&, const std::vector<float>&);
template Worst worst_of(const MathCase&, const MathSample<double>&, const std::vector<double>&);

}  // namespace tutti::codegen::testing
