#include "tutti/ops/activation.h"

#include <cmath>

#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

extern const OpDef kRelu, kReluBackward, kSilu, kSiluBackward, kGelu, kGeluBackward, kGeluTanh, kGeluTanhBackward,
    kSwiglu, kSwigluBackward;

constexpr double kInvSqrt2 = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;  // density of the normal distribution at 0
constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

Expr sigmoid_of(Expr x) { return apply_scalar(ScalarOp::sigmoid, x); }
double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }

// ---- forward and derivative, as expressions and as doubles ----------------------------------------------------------

Expr relu_expr(Expr x) { return apply_scalar(ScalarOp::maximum, x, x.pool()->constant(0.0, x.dtype())); }
Expr relu_slope(Expr x) {
  const Expr zero = x.pool()->constant(0.0, x.dtype()), one = x.pool()->constant(1.0, x.dtype());
  return where(apply_scalar(ScalarOp::gt, x, zero), one, zero);
}
Expr silu_expr(Expr x) { return x * sigmoid_of(x); }
Expr silu_slope(Expr x) {
  const Expr s = sigmoid_of(x);
  return s * (1.0 + x * (1.0 - s));
}
// The normal distribution at x: exp(-x^2 / 2) and the probability of less than x, both without cancellation in the
// lower tail.
struct Normal {
  Expr bell, cdf;
};
Normal normal_of(Expr x) {
  constexpr double kNoMore = 40;  // exp(-800) is 0
  const Expr zero = x.pool()->constant(0.0, x.dtype());
  const Expr size =
      apply_scalar(ScalarOp::minimum, apply_scalar(ScalarOp::abs, x), x.pool()->constant(kNoMore, x.dtype()));
  const Expr half = 0.5 * size, square = half * size;
  const Expr power = apply_scalar(ScalarOp::exp, -square);
  // The square is rounded at its own size, which would be an error of as many ULP in its exponential.
  const Expr bell = apply_scalar(ScalarOp::fma, power, -apply_scalar(ScalarOp::fma, half, size, -square), power);
  const Expr tail = 0.5 * apply_scalar(ScalarOp::erfcx, size * kInvSqrt2) * bell;
  return {bell, where(apply_scalar(ScalarOp::lt, x, zero), tail, 1.0 - tail)};
}
Expr gelu_expr(Expr x) { return x * normal_of(x).cdf; }
Expr gelu_slope(Expr x) {
  const Normal normal = normal_of(x);
  return normal.cdf + x * (kInvSqrt2Pi * normal.bell);
}
// (1 + tanh(u)) / 2 of the formula, without cancellation.
Expr gelu_tanh_gate(Expr x) { return sigmoid_of((2 * kSqrt2OverPi) * (x + kCubic * (x * x * x))); }
Expr gelu_tanh_expr(Expr x) { return x * gelu_tanh_gate(x); }
Expr gelu_tanh_slope(Expr x) {
  const Expr s = gelu_tanh_gate(x);
  return s + x * (s * (1.0 - s)) * ((2 * kSqrt2OverPi) * (1.0 + 3 * kCubic * (x * x)));
}

double relu_value(double x) { return x > 0 || std::isnan(x) ? x : 0; }
double relu_derivative(double x) { return x > 0; }
double silu_value(double x) { return x * sigmoid_of(x); }
double silu_derivative(double x) { return sigmoid_of(x) * (1 + x * (1 - sigmoid_of(x))); }
double gelu_value(double x) { return 0.5 * x * std::erfc(-x * kInvSqrt2); }
double gelu_derivative(double x) { return 0.5 * std::erfc(-x * kInvSqrt2) + x * kInvSqrt2Pi * std::exp(-0.5 * x * x); }
double gelu_tanh_gate(double x) { return sigmoid_of(2 * kSqrt2OverPi * (x + kCubic * x * x * x)); }
double gelu_tanh_value(double x) { return x * gelu_tanh_gate(x); }
double gelu_tanh_derivative(double x) {
  const double s = gelu_tanh_gate(x);
  return s + x * s * (1 - s) * 2 * kSqrt2OverPi * (1 + 3 * kCubic * x * x);
}

// ---- unary activations: y = f(x), dx = g f'(x) ----------------------------------------------------------------------

template <Expr (*f)(Expr)>
void build_value(RecipeBuilder& b) {
  b.out(f(b.in(0)));
}
template <Expr (*slope)(Expr)>
void build_gradient(RecipeBuilder& b) {
  b.out(cast(b.in(0), b.in(1).dtype()) * slope(b.in(1)));
}
template <double (*f)(double)>
void reference_value(const OpCall& call, std::span<const Tensor> outputs) {
  facets::reference_map(call, outputs, [](const double* x) { return f(x[0]); });
}
template <double (*slope)(double)>
void reference_gradient(const OpCall& call, std::span<const Tensor> outputs) {
  facets::reference_map(call, outputs, [](const double* x) { return x[0] * slope(x[1]); });
}
// The gradient has the dtype of x, whatever the cotangent's.
void infer_gradient(const OpCall& call, OutputMetas& out) { out.add(call[1].dtype(), facets::broadcast_inputs(call)); }
template <const OpDef* backward>
void vjp_unary(const VjpCall& call, std::span<Tensor> grads) {
  if (call.grads[0].defined()) grads[0] = call_op(*backward, {}, call.grads[0], call.inputs[0]);
}

constexpr DType kFloats[] = {DType::f32, DType::f64, DType::bf16, DType::f16};
std::string sharding_value(const OpCall& call) { return facets::pointwise_sharding(call, "|"); }
std::string sharding_gradient(const OpCall& call) { return facets::pointwise_sharding(call, "| lin", 0b10); }
std::vector<Sample> samples_value() { return facets::pointwise_samples(1, kFloats, -5, 5); }
std::vector<Sample> samples_gradient() { return facets::pointwise_samples(2, kFloats, -5, 5); }

constexpr const char* kOnce =
    "gradients of this gradient are not defined; write the activation with mul and sigmoid, erf or tanh";

template <Expr (*f)(Expr), double (*value)(double), const OpDef* backward>
constexpr OpDef value_op(const char* name) {
  return {.name = name,
          .num_inputs = 1,
          .infer = facets::infer_pointwise,
          .reference = reference_value<value>,
          .gradient = {.vjp = vjp_unary<backward>, .saves_inputs = 1},
          .recipe = {.build = build_value<f>},
          .sharding = sharding_value,
          .samples = samples_value,
          .tolerance = {.f32 = 2e-6}};
}
template <Expr (*slope)(Expr), double (*derivative)(double)>
constexpr OpDef gradient_op(const char* name) {
  return {.name = name,
          .num_inputs = 2,
          .infer = infer_gradient,
          .reference = reference_gradient<derivative>,
          .gradient = {.none = kOnce},
          .recipe = {.build = build_gradient<slope>},
          .sharding = sharding_gradient,
          .samples = samples_gradient,
          .tolerance = {.f32 = 5e-6}};
}

const OpDef kRelu = value_op<relu_expr, relu_value, &kReluBackward>("relu");
const OpDef kReluBackward = gradient_op<relu_slope, relu_derivative>("relu_backward");
const OpDef kSilu = value_op<silu_expr, silu_value, &kSiluBackward>("silu");
const OpDef kSiluBackward = gradient_op<silu_slope, silu_derivative>("silu_backward");
const OpDef kGelu = value_op<gelu_expr, gelu_value, &kGeluBackward>("gelu");
const OpDef kGeluBackward = gradient_op<gelu_slope, gelu_derivative>("gelu_backward");
const OpDef kGeluTanh = value_op<gelu_tanh_expr, gelu_tanh_value, &kGeluTanhBackward>("gelu_tanh");
const OpDef kGeluTanhBackward = gradient_op<gelu_tanh_slope, gelu_tanh_derivative>("gelu_tanh_backward");

// ---- swiglu ---------------------------------------------------------------------------------------------------------

void build_swiglu(RecipeBuilder& b) { b.out(silu_expr(b.in(0)) * b.in(1)); }
void reference_swiglu(const OpCall& call, std::span<const Tensor> outputs) {
  facets::reference_map(call, outputs, [](const double* x) { return silu_value(x[0]) * x[1]; });
}
// Inputs g, gate, up; outputs d gate, d up.
void infer_swiglu_backward(const OpCall& call, OutputMetas& out) {
  out.add(call[1].dtype(), call[1].sizes());
  out.add(call[2].dtype(), call[2].sizes());
}
void build_swiglu_backward(RecipeBuilder& b) {
  const Expr gate = b.in(1), up = b.in(2), g = cast(b.in(0), gate.dtype());
  b.out(g * up * silu_slope(gate));
  b.out(g * silu_expr(gate));
}
void reference_swiglu_backward(const OpCall& call, std::span<const Tensor> outputs) {
  facets::for_each_element(outputs[0].extents(), call.inputs, [&](int64_t i, const int64_t* at) {
    const double g = facets::read_double(call[0], at[0]), gate = facets::read_double(call[1], at[1]);
    facets::write_double(outputs[0], i, g * facets::read_double(call[2], at[2]) * silu_derivative(gate));
    facets::write_double(outputs[1], i, g * silu_value(gate));
  });
}
void vjp_swiglu(const VjpCall& call, std::span<Tensor> grads) {
  if (!call.grads[0].defined()) return;
  const Tensor inputs[] = {call.grads[0], call.inputs[0], call.inputs[1]};
  apply(kSwigluBackward, inputs, {}, grads);
}
std::vector<Sample> equal_shapes(int arity) {
  std::vector<Sample> list = facets::pointwise_samples(arity, kFloats, -4, 4);
  std::erase_if(list, [](const Sample& s) { return s.name.starts_with("broadcast"); });
  return list;
}

const OpDef kSwiglu{.name = "swiglu",
                    .num_inputs = 2,
                    .infer = facets::infer_pointwise,
                    .reference = reference_swiglu,
                    .gradient = {.vjp = vjp_swiglu, .saves_inputs = 0b11},
                    .recipe = {.build = build_swiglu},
                    .sharding = [](const OpCall& call) { return facets::pointwise_sharding(call, "|", 0b11); },
                    .samples = [] { return equal_shapes(2); },
                    .tolerance = {.f32 = 5e-6}};
const OpDef kSwigluBackward{.name = "swiglu_backward",
                            .num_inputs = 3,
                            .num_outputs = 2,
                            .infer = infer_swiglu_backward,
                            .reference = reference_swiglu_backward,
                            .gradient = {.none = kOnce},
                            .recipe = {.build = build_swiglu_backward},
                            .sharding =
                                [](const OpCall& call) {
                                  const std::string one = facets::pointwise_sharding(call, "", 0b111);
                                  const size_t arrow = one.find("-> y"), bar = one.find(" |");
                                  return one.substr(0, bar) + " z" + one.substr(arrow + 4, bar - arrow - 4) + " | |";
                                },
                            .samples = [] { return equal_shapes(3); },
                            .tolerance = {.f32 = 1e-5}};

Tensor activation(const OpDef& op, const Tensor& x) {
  TUTTI_CHECK(is_floating(x.dtype()), "{}: needs a float tensor, got {}", op.name, describe(x));
  return call_op(op, {}, x);
}

}  // namespace

Tensor relu(const Tensor& x) { return activation(kRelu, x); }
Tensor silu(const Tensor& x) { return activation(kSilu, x); }
Tensor gelu(const Tensor& x, GeluForm form) { return activation(form == GeluForm::erf ? kGelu : kGeluTanh, x); }

Tensor swiglu(const Tensor& gate, const Tensor& up) {
  TUTTI_CHECK(gate.sizes() == up.sizes() && gate.dtype() == up.dtype() && is_floating(gate.dtype()),
              "swiglu: gate is {}, up is {}; expected two float tensors of one shape and dtype", describe(gate),
              describe(up));
  return call_op(kSwiglu, {}, gate, up);
}

}  // namespace tutti

TUTTI_OPS(activation, &::tutti::kRelu, &::tutti::kReluBackward, &::tutti::kSilu, &::tutti::kSiluBackward,
          &::tutti::kGelu, &::tutti::kGeluBackward, &::tutti::kGeluTanh, &::tutti::kGeluTanhBackward, &::tutti::kSwiglu,
          &::tutti::kSwigluBackward)
