#include "tutti/ops/unary.h"

#include <cmath>
#include <numbers>

#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/pointwise/pointwise.h"

namespace tutti {
namespace {

using pointwise::Range;

enum class Rule : uint8_t { any, number, bits, floats, truth };  // number: not booleans; bits: not floats
enum class Saves : uint8_t { nothing, input, output };
using Derivative = Tensor (*)(const Tensor& g, const Tensor& v);  // v: what was saved

// One function: what it is, in the words of every facet.
struct UnaryRow : OpDef {
  ScalarOp scalar;
  Rule rule;
  Range domain;             // of samples
  const char* partial;      // sharding: which partial sums pass
  double (*value)(double);  // reference
  int64_t (*integer)(int64_t) = nullptr;
  Derivative derivative = nullptr;  // null with saves == nothing: zero wherever it exists
};

const UnaryRow& row_of(const OpDef& op) { return static_cast<const UnaryRow&>(op); }

DType computes_in(const OpCall& call) {
  const DType dtype = call[0].dtype();
  return row_of(call.op).rule == Rule::floats && !is_floating(dtype) ? DType::f32 : compute_dtype(dtype);
}

void infer(const OpCall& call, OutputMetas& out) {
  const DType dtype = call[0].dtype();
  const Rule rule = row_of(call.op).rule;
  TUTTI_CHECK(rule != Rule::number || dtype != DType::boolean,
              "{}: x is {}; booleans have no negative, use logical_not or cast() first", call.op.name,
              describe(call[0]));
  TUTTI_CHECK(rule != Rule::bits || !is_floating(dtype), "{}: x is {}; expected integers or booleans", call.op.name,
              describe(call[0]));
  const bool to_f32 = rule == Rule::floats && !is_floating(dtype);
  out.add(rule == Rule::truth ? DType::boolean : to_f32 ? DType::f32 : dtype, call[0].sizes());
}

void reference(const OpCall& call, std::span<const Tensor> outputs) {
  const UnaryRow& row = row_of(call.op);
  pointwise::run_map(
      {outputs[0], call.inputs, computes_in(call)}, [&](const double* v) { return row.value(v[0]); },
      [&](const int64_t* v) {
        if (call[0].dtype() == DType::boolean && row.scalar == ScalarOp::bitwise_not)
          return static_cast<int64_t>(v[0] == 0);
        return row.integer ? row.integer(v[0]) : v[0];
      });
}

void vjp(const VjpCall& c, std::span<Tensor> grads) {
  const UnaryRow& row = row_of(c.op);
  if (!c.grads[0].defined() || row.derivative == nullptr) return;
  const Tensor& saved = c.op.gradient.saves_outputs  ? c.outputs[0]
                        : c.op.gradient.saves_inputs ? c.inputs[0]
                                                     : c.grads[0];
  grads[0] = cast(row.derivative(c.grads[0], saved), c.input_metas[0].dtype);
}

void build(RecipeBuilder& b) {
  b.out(apply_scalar(row_of(b.call.op).scalar, pointwise::in(b, 0, computes_in(b.call))));
}

std::string sharding(const OpCall& call) { return facets::pointwise_sharding(call, row_of(call.op).partial); }

std::vector<Sample> samples_of(const UnaryRow& row) {
  constexpr DType floats[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32};
  constexpr DType any[] = {DType::f32, DType::f64, DType::bf16, DType::i64, DType::i8, DType::u8};
  constexpr DType bits[] = {DType::i64, DType::i16, DType::u8, DType::boolean};
  const Range floating[] = {row.domain};
  const Range integers[] = {row.rule == Rule::floats ? Range{std::max(row.domain.lo, -3.0), row.domain.hi}
                                                     : Range{-9, 9}};
  const std::span<const DType> dtypes = row.rule == Rule::bits     ? std::span<const DType>(bits)
                                        : row.rule == Rule::floats ? std::span<const DType>(floats)
                                                                   : std::span<const DType>(any);
  std::vector<Sample> samples = pointwise::samples(dtypes, floating, integers);
  if (row.rule == Rule::any || row.rule == Rule::truth) {
    constexpr float inf = INFINITY;
    samples.push_back(
        {"edges", {Tensor::of<float>({0.0f, -0.0f, inf, -inf, NAN, 0.5f, 1.5f, 2.5f, -0.5f, 1e-41f, 3e38f})}, {}});
  }
  return samples;
}

UnaryRow make_row(const char* name, ScalarOp scalar, Rule rule, Range domain, const char* partial,
                  double (*value)(double), int64_t (*integer)(int64_t), Saves saves, Derivative derivative,
                  std::vector<Sample> (*samples)()) {
  Gradient gradient{.vjp = vjp, .saves_inputs = saves == Saves::input, .saves_outputs = saves == Saves::output};
  if (rule == Rule::truth) gradient = {.none = "the result is a truth value"};
  if (rule == Rule::bits) gradient = {.none = "the operands are integers"};
  if (scalar == ScalarOp::lgamma) gradient = {.none = "its derivative, the digamma function, is not among the ops"};
  return {{.name = name,
           .num_inputs = 1,
           .infer = infer,
           .reference = reference,
           .gradient = gradient,
           .recipe = {.build = build},
           .sharding = sharding,
           .samples = samples,
           .tolerance = rule == Rule::floats ? Tolerance{2e-6, 1e-13} : Tolerance{0, 0}},
          scalar,
          rule,
          domain,
          partial,
          value,
          integer,
          derivative};
}

}  // namespace

#define UNARY_ROW(op, ...)                                                                                 \
  namespace {                                                                                              \
  extern const UnaryRow op##_row;                                                                          \
  const UnaryRow op##_row = make_row(#op, ScalarOp::op, __VA_ARGS__, [] { return samples_of(op##_row); }); \
  }                                                                                                        \
  Tensor op(const Tensor& x) { return call_op(op##_row, {}, x); }
#define VALUE(expression) [](double x) -> double { return expression; }
#define INTEGER(expression) [](int64_t x) -> int64_t { return expression; }
// The derivative in terms of the cotangent g and the saved x or y.
#define OF_X(expression) Saves::input, [](const Tensor& g, const Tensor& x) { return expression; }
#define OF_Y(expression) Saves::output, [](const Tensor& g, const Tensor& y) { return expression; }
#define NEVER [](int64_t) -> int64_t { return 0; }
#define ZERO Saves::nothing, nullptr

using std::numbers::ln10;
using std::numbers::ln2;
const double kSqrtPi = 1.0 / std::numbers::inv_sqrtpi;
#define NEGATE(x) static_cast<int64_t>(0 - static_cast<uint64_t>(x))

// clang-format off
UNARY_ROW(abs,   Rule::any,    (Range{-3, 3}), "|",          VALUE(std::fabs(x)),  INTEGER(x < 0 ? NEGATE(x) : x), OF_X(mul(g, sign(x))))
UNARY_ROW(neg,   Rule::number, (Range{-3, 3}), "| lin dn | dn", VALUE(-x),            INTEGER(NEGATE(x)), Saves::nothing, [](const Tensor& g, const Tensor&) { return neg(g); })
UNARY_ROW(sign,  Rule::any,    (Range{-3, 3}), "| up | up", VALUE((x > 0) - (x < 0)), INTEGER((x > 0) - (x < 0)), ZERO)
UNARY_ROW(ceil,  Rule::any,    (Range{-3, 3}), "| up",      VALUE(std::ceil(x)),  nullptr, ZERO)
UNARY_ROW(floor, Rule::any,    (Range{-3, 3}), "| up",      VALUE(std::floor(x)), nullptr, ZERO)
UNARY_ROW(trunc, Rule::any,    (Range{-3, 3}), "| up",      VALUE(std::trunc(x)), nullptr, ZERO)
UNARY_ROW(round, Rule::any,    (Range{-3, 3}), "| up",      VALUE(std::nearbyint(x)), nullptr, ZERO)
UNARY_ROW(bitwise_not, Rule::bits, (Range{-3, 3}), "|",      VALUE(x),             INTEGER(~x), ZERO)

UNARY_ROW(exp,   Rule::floats, (Range{-5, 5}),    "| up", VALUE(std::exp(x)),   nullptr, OF_Y(mul(g, y)))
UNARY_ROW(exp2,  Rule::floats, (Range{-5, 5}),    "| up", VALUE(std::exp2(x)),  nullptr, OF_Y(mul(mul(g, y), ln2)))
UNARY_ROW(expm1, Rule::floats, (Range{-3, 3}),    "| up", VALUE(std::expm1(x)), nullptr, OF_Y(mul(g, add(y, 1.0))))
UNARY_ROW(log,   Rule::floats, (Range{0.1, 9}),   "|",    VALUE(std::log(x)),   nullptr, OF_X(truediv(g, x)))
UNARY_ROW(log2,  Rule::floats, (Range{0.1, 9}),   "|",    VALUE(std::log2(x)),  nullptr, OF_X(truediv(g, mul(x, ln2))))
UNARY_ROW(log10, Rule::floats, (Range{0.1, 9}),   "|",    VALUE(std::log10(x)), nullptr, OF_X(truediv(g, mul(x, ln10))))
UNARY_ROW(log1p, Rule::floats, (Range{-0.5, 5}),  "|",    VALUE(std::log1p(x)), nullptr, OF_X(truediv(g, add(x, 1.0))))
UNARY_ROW(sqrt,  Rule::floats, (Range{0.1, 9}),   "|",    VALUE(std::sqrt(x)),  nullptr, OF_Y(truediv(g, mul(y, 2.0))))
UNARY_ROW(rsqrt, Rule::floats, (Range{0.1, 9}),   "|",    VALUE(1 / std::sqrt(x)), nullptr, OF_Y(mul(mul(mul(mul(g, y), y), y), -0.5)))
UNARY_ROW(reciprocal, Rule::floats, (Range{0.3, 4}), "|", VALUE(1 / x),         nullptr, OF_Y(neg(mul(g, mul(y, y)))))
UNARY_ROW(sin,   Rule::floats, (Range{-4, 4}),    "|",    VALUE(std::sin(x)),   nullptr, OF_X(mul(g, cos(x))))
UNARY_ROW(cos,   Rule::floats, (Range{-4, 4}),    "|",    VALUE(std::cos(x)),   nullptr, OF_X(neg(mul(g, sin(x)))))
UNARY_ROW(tan,   Rule::floats, (Range{-1.2, 1.2}), "|",   VALUE(std::tan(x)),   nullptr, OF_Y(mul(g, add(mul(y, y), 1.0))))
UNARY_ROW(asin,  Rule::floats, (Range{-0.9, 0.9}), "|",   VALUE(std::asin(x)),  nullptr, OF_X(mul(g, rsqrt(sub(1.0, mul(x, x))))))
UNARY_ROW(acos,  Rule::floats, (Range{-0.9, 0.9}), "|",   VALUE(std::acos(x)),  nullptr, OF_X(neg(mul(g, rsqrt(sub(1.0, mul(x, x)))))))
UNARY_ROW(atan,  Rule::floats, (Range{-4, 4}),    "| up", VALUE(std::atan(x)),  nullptr, OF_X(truediv(g, add(mul(x, x), 1.0))))
UNARY_ROW(sinh,  Rule::floats, (Range{-3, 3}),    "| up", VALUE(std::sinh(x)),  nullptr, OF_X(mul(g, cosh(x))))
UNARY_ROW(cosh,  Rule::floats, (Range{-3, 3}),    "|",    VALUE(std::cosh(x)),  nullptr, OF_X(mul(g, sinh(x))))
UNARY_ROW(tanh,  Rule::floats, (Range{-3, 3}),    "| up", VALUE(std::tanh(x)),  nullptr, OF_Y(mul(g, sub(1.0, mul(y, y)))))
UNARY_ROW(asinh, Rule::floats, (Range{-3, 3}),    "| up", VALUE(std::asinh(x)), nullptr, OF_X(mul(g, rsqrt(add(mul(x, x), 1.0)))))
UNARY_ROW(acosh, Rule::floats, (Range{1.2, 5}),   "|",    VALUE(std::acosh(x)), nullptr, OF_X(mul(g, rsqrt(sub(mul(x, x), 1.0)))))
UNARY_ROW(atanh, Rule::floats, (Range{-0.8, 0.8}), "|",   VALUE(std::atanh(x)), nullptr, OF_X(truediv(g, sub(1.0, mul(x, x)))))
UNARY_ROW(erf,   Rule::floats, (Range{-3, 3}),    "| up", VALUE(std::erf(x)),   nullptr, OF_X(mul(mul(g, exp(neg(mul(x, x)))), 2 / kSqrtPi)))
UNARY_ROW(sigmoid, Rule::floats, (Range{-5, 5}),  "| up", VALUE(1 / (1 + std::exp(-x))), nullptr, OF_Y(mul(mul(g, y), sub(1.0, y))))
UNARY_ROW(lgamma, Rule::floats, (Range{0.3, 6}),  "|",    VALUE(std::lgamma(x)), nullptr, ZERO)

UNARY_ROW(signbit,     Rule::truth, (Range{-3, 3}), "|", VALUE(std::signbit(x)), INTEGER(x < 0), ZERO)
UNARY_ROW(logical_not, Rule::truth, (Range{-3, 3}), "|", VALUE(x == 0),          INTEGER(x == 0), ZERO)
UNARY_ROW(isnan,       Rule::truth, (Range{-3, 3}), "|", VALUE(std::isnan(x)),   NEVER, ZERO)
UNARY_ROW(isinf,       Rule::truth, (Range{-3, 3}), "|", VALUE(std::isinf(x)),   NEVER, ZERO)
// clang-format on

namespace {

// The inverse of erf by Newton's method: f(y) = erf(y) - x, f' = 2/sqrt(pi) exp(-y^2), from Winitzki's approximation.
double erfinv_value(double x) {
  if (!(std::fabs(x) < 1)) return std::fabs(x) == 1 ? std::copysign(INFINITY, x) : NAN;
  const double l = std::log1p(-x * x), a = 0.147, t = 2 / (std::numbers::pi * a) + l / 2;
  double y = std::copysign(std::sqrt(std::sqrt(t * t - l / a) - t), x);
  for (int i = 0; i < 5; ++i) y -= (std::erf(y) - x) * kSqrtPi / 2 * std::exp(y * y);
  return y;
}

}  // namespace
// clang-format off
UNARY_ROW(erfinv, Rule::floats, (Range{-0.9, 0.9}), "|", erfinv_value, nullptr, OF_Y(mul(mul(g, exp(mul(y, y))), kSqrtPi / 2)))
// clang-format on

#undef UNARY_ROW
#undef VALUE
#undef INTEGER
#undef OF_X
#undef OF_Y
#undef ZERO
#undef NEVER
#undef NEGATE

}  // namespace tutti

TUTTI_OPS(unary, &abs_row, &neg_row, &sign_row, &ceil_row, &floor_row, &trunc_row, &round_row, &bitwise_not_row,
          &exp_row, &exp2_row, &expm1_row, &log_row, &log2_row, &log10_row, &log1p_row, &sqrt_row, &rsqrt_row,
          &reciprocal_row, &sin_row, &cos_row, &tan_row, &asin_row, &acos_row, &atan_row, &sinh_row, &cosh_row,
          &tanh_row, &asinh_row, &acosh_row, &atanh_row, &erf_row, &erfinv_row, &sigmoid_row, &lgamma_row, &signbit_row,
          &logical_not_row, &isnan_row, &isinf_row)
