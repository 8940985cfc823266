#include "bench/math_bench.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "tutti/ops/activation.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/random.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/unary.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::bench {
namespace {

// Every bound of docs/math_ulp.md is below it.
constexpr double kMostUlp = 3;

struct Function {
  const char* name;
  int inputs;
  double low, high;  // of arguments
  std::function<Tensor(const Tensor&, const Tensor&)> op;
  // The function of the C library, null where it has none: over arrays, and of one argument in the wider type.
  void (*f32_loop)(const float*, const float*, float*, int64_t) = nullptr;
  void (*f64_loop)(const double*, const double*, double*, int64_t) = nullptr;
  double (*f32_exact)(double, double) = nullptr;
  long double (*f64_exact)(long double, long double) = nullptr;
  bool bounded = true;  // one function with a bound, and not several ops
};

template <class T, class F>
void loop(const T* a, const T* b, T* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = F{}(a[i], b[i]);
}

template <class F>
Function unary(const char* name, double low, double high, Tensor (*op)(const Tensor&), F) {
  return {name,
          1,
          low,
          high,
          [op](const Tensor& x, const Tensor&) { return op(x); },
          loop<float, F>,
          loop<double, F>,
          [](double x, double y) { return F{}(x, y); },
          [](long double x, long double y) { return F{}(x, y); }};
}

template <class F>
Function composite(const char* name, double low, double high, std::function<Tensor(const Tensor&, const Tensor&)> op, F,
                   int inputs = 1, bool bounded = false) {
  return {name,
          inputs,
          low,
          high,
          std::move(op),
          loop<float, F>,
          loop<double, F>,
          [](double x, double y) { return F{}(x, y); },
          [](long double x, long double y) { return F{}(x, y); },
          bounded};
}

std::vector<Function> functions() {
#define TUTTI_LIBM(call) [](auto x, [[maybe_unused]] auto y) { return call; }
  std::vector<Function> list = {
      unary("exp", -10, 10, exp, TUTTI_LIBM(std::exp(x))),
      unary("exp2", -10, 10, exp2, TUTTI_LIBM(std::exp2(x))),
      unary("expm1", -5, 5, expm1, TUTTI_LIBM(std::expm1(x))),
      unary("log", 0.01, 100, log, TUTTI_LIBM(std::log(x))),
      unary("log2", 0.01, 100, log2, TUTTI_LIBM(std::log2(x))),
      unary("log10", 0.01, 100, log10, TUTTI_LIBM(std::log10(x))),
      unary("log1p", -0.9, 10, log1p, TUTTI_LIBM(std::log1p(x))),
      unary("sin", -10, 10, sin, TUTTI_LIBM(std::sin(x))),
      unary("cos", -10, 10, cos, TUTTI_LIBM(std::cos(x))),
      unary("tan", -10, 10, tan, TUTTI_LIBM(std::tan(x))),
      unary("asin", -1, 1, asin, TUTTI_LIBM(std::asin(x))),
      unary("acos", -1, 1, acos, TUTTI_LIBM(std::acos(x))),
      unary("atan", -10, 10, atan, TUTTI_LIBM(std::atan(x))),
      unary("sinh", -10, 10, sinh, TUTTI_LIBM(std::sinh(x))),
      unary("cosh", -10, 10, cosh, TUTTI_LIBM(std::cosh(x))),
      unary("tanh", -5, 5, tanh, TUTTI_LIBM(std::tanh(x))),
      unary("asinh", -10, 10, asinh, TUTTI_LIBM(std::asinh(x))),
      unary("acosh", 1, 10, acosh, TUTTI_LIBM(std::acosh(x))),
      unary("atanh", -0.99, 0.99, atanh, TUTTI_LIBM(std::atanh(x))),
      unary("erf", -4, 4, erf, TUTTI_LIBM(std::erf(x))),
      unary("sigmoid", -10, 10, sigmoid, TUTTI_LIBM(1 / (1 + std::exp(-x)))),
      unary("lgamma", 0.1, 10, lgamma, TUTTI_LIBM(std::lgamma(x))),
      composite(
          "pow", 0.1, 10, [](const Tensor& x, const Tensor& y) { return pow(x, y); }, TUTTI_LIBM(std::pow(x, y)), 2,
          true),
      composite(
          "atan2", -4, 4, [](const Tensor& x, const Tensor& y) { return atan2(x, y); }, TUTTI_LIBM(std::atan2(x, y)), 2,
          true),
      composite(
          "silu", -10, 10, [](const Tensor& x, const Tensor&) { return silu(x); }, TUTTI_LIBM(x / (1 + std::exp(-x)))),
      composite(
          "gelu", -4, 4, [](const Tensor& x, const Tensor&) { return gelu(x); },
          TUTTI_LIBM(x / 2 * (1 + std::erf(x * static_cast<decltype(x)>(M_SQRT1_2l))))),
      composite(
          "gelu (tanh)", -4, 4, [](const Tensor& x, const Tensor&) { return gelu(x, GeluForm::tanh); },
          TUTTI_LIBM(x / 2 *
                     (1 + std::tanh(static_cast<decltype(x)>(0.7978845608028653558798921198687637L) *
                                    (x + static_cast<decltype(x)>(0.044715L) * x * x * x))))),
  };
#undef TUTTI_LIBM
  list.push_back({"erfinv", 1, -0.99, 0.99, [](const Tensor& x, const Tensor&) { return erfinv(x); }});
  return list;
}

// |computed - exact| in units of the last place of T, as docs/math_ulp.md counts.
template <class T, class Wide>
double error_in_ulp(T computed, Wide exact) {
  using Limits = std::numeric_limits<T>;
  const int exponent = exact == 0 ? Limits::min_exponent : std::max(std::ilogb(exact), Limits::min_exponent - 1);
  return static_cast<double>(std::fabs(static_cast<Wide>(computed) - exact) /
                             std::ldexp(Wide{1}, exponent - (Limits::digits - 1)));
}

template <class T, class Wide>
double largest_error(const Tensor& a, const Tensor& b, const Tensor& y, Wide (*exact)(Wide, Wide)) {
  double most = 0;
  for (int64_t i = 0; i < y.numel(); ++i) {
    const double error = error_in_ulp<T>(y.data<T>()[i], exact(a.data<T>()[i], b.data<T>()[i]));
    most = error <= most ? most : error;  // a NaN stays
  }
  return most;
}

MathRow measure_function(const Function& f, const MathCase& problem, DType dtype, bool in_cache) {
  const int64_t n = problem.small ? (in_cache ? 1001 : 5003) : in_cache ? int64_t{1} << 16 : int64_t{1} << 24;
  const Tensor a = cast(uniform({n}, random_key("a"), f.low, f.high), dtype),
               b = cast(uniform({n}, random_key("b"), f.inputs == 2 ? -4.0 : 0.0, 4.0), dtype);
  const Tensor other = zeros({n}, dtype);
  MathRow row{.op = f.name, .dtype = dtype, .where = in_cache ? "cache" : "memory", .elements = n};
  Tensor y = f.op(a, b);
  const bool narrow = dtype == DType::f32;
  std::vector<std::function<void()>> ways{[&] { y = f.op(a, b); }};
  if (f.f32_loop) {
    ways.push_back([&] {
      ThreadPool::current().parallel_for(n, 4096, [&](int64_t begin, int64_t end) {
        if (narrow)
          f.f32_loop(a.data<float>() + begin, b.data<float>() + begin, other.data<float>() + begin, end - begin);
        else f.f64_loop(a.data<double>() + begin, b.data<double>() + begin, other.data<double>() + begin, end - begin);
      });
    });
    if (in_cache)
      row.ulp = narrow ? largest_error<float>(a, b, y, f.f32_exact) : largest_error<double>(a, b, y, f.f64_exact);
    row.verified = !f.bounded || row.ulp < kMostUlp;
  }
  const std::vector<Timing> times = measure_in_turns(ways, problem.small ? 0.0 : 150.0, problem.clock);
  row.tutti = times[0];
  if (times.size() > 1) row.libm = times[1];
  row.gbps = static_cast<double>(itemsize(dtype) * n * (f.inputs + 1)) / row.tutti.min_us / 1e3;
  return row;
}

}  // namespace

std::vector<MathRow> run_math_bench(const MathCase& problem) {
  TUTTI_CHECK(problem.clock == MeasuredTime::wall || problem.threads == 1,
              "bench math: --cpu-time is that of one thread, and --threads is {}; use --threads 1", problem.threads);
  RankContext::current().set_threads(problem.threads);
  seed_all(1);
  std::vector<MathRow> rows;
  for (const Function& f : functions()) {
    if (std::string(f.name).find(problem.only) == std::string::npos) continue;
    for (const DType dtype : {DType::f32, DType::f64})
      for (const bool in_cache : {true, false}) rows.push_back(measure_function(f, problem, dtype, in_cache));
  }
  return rows;
}

}  // namespace tutti::bench
