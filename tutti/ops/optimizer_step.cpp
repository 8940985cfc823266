#include "tutti/ops/optimizer_step.h"

#include <cmath>

#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

// Run-time scalars, in the order the recipes read them; rounded to f32 in the kernel.
struct AdamWAttrs {
  double grad_scale, decay, beta1, one_minus_beta1, beta2, one_minus_beta2, step_size, inv_correction2, eps;
};
struct SgdAttrs {
  double grad_scale, weight_decay, momentum, lr;
};

template <class T>
int params_of(const OpCall& call, codegen::ParamValue* params) {
  const T& attrs = call.attrs.as<T>();
  const double* values = reinterpret_cast<const double*>(&attrs);
  for (size_t i = 0; i < sizeof(T) / sizeof(double); ++i) params[i].f = values[i];
  return static_cast<int>(sizeof(T) / sizeof(double));
}

// Inputs param, grad, state...; outputs are the param and the states, in place.
void infer(const OpCall& call, OutputMetas& out) {
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    if (i != 1) out.add(call[i].dtype(), call[i].sizes());
  }
}

void build_adamw(RecipeBuilder& b) {
  const auto param = [&](int i) { return b.param(i, DType::f32); };
  const Expr p = b.in(0), g = cast(b.in(1), DType::f32) * param(0);
  const Expr m = param(2) * b.in(2) + param(3) * g;
  const Expr v = param(4) * b.in(3) + param(5) * (g * g);
  const Expr denominator = apply_scalar(ScalarOp::sqrt, v * param(7)) + param(8);
  b.out(p * param(1) - param(6) * m / denominator);
  b.out(m);
  b.out(v);
}

void build_sgd(RecipeBuilder& b) {
  const auto param = [&](int i) { return b.param(i, DType::f32); };
  const Expr p = b.in(0), g = cast(b.in(1), DType::f32) * param(0) + param(1) * p;
  const Expr buffer = param(2) * b.in(2) + g;
  b.out(p - param(3) * buffer);
  b.out(buffer);
}

void reference_adamw(const OpCall& call, std::span<const Tensor> outputs) {
  const AdamWAttrs& a = call.attrs.as<AdamWAttrs>();
  facets::for_each_element(call[0].extents(), call.inputs, [&](int64_t, const int64_t* at) {
    const auto in = [&](size_t i) { return facets::read_double(call[i], at[i]); };
    const double g = in(1) * a.grad_scale;
    const double m = a.beta1 * in(2) + a.one_minus_beta1 * g, v = a.beta2 * in(3) + a.one_minus_beta2 * g * g;
    const double p = in(0) * a.decay - a.step_size * m / (std::sqrt(v * a.inv_correction2) + a.eps);
    facets::write_double(outputs[0], at[0], p);
    facets::write_double(outputs[1], at[2], m);
    facets::write_double(outputs[2], at[3], v);
  });
}

void reference_sgd(const OpCall& call, std::span<const Tensor> outputs) {
  const SgdAttrs& a = call.attrs.as<SgdAttrs>();
  facets::for_each_element(call[0].extents(), call.inputs, [&](int64_t, const int64_t* at) {
    const auto in = [&](size_t i) { return facets::read_double(call[i], at[i]); };
    const double buffer = a.momentum * in(2) + in(1) * a.grad_scale + a.weight_decay * in(0);
    facets::write_double(outputs[0], at[0], in(0) - a.lr * buffer);
    facets::write_double(outputs[1], at[2], buffer);
  });
}

AdamWAttrs attrs_of(const AdamWStep& o) {
  const double correction1 = 1 - std::pow(o.beta1, static_cast<double>(o.step));
  const double correction2 = 1 - std::pow(o.beta2, static_cast<double>(o.step));
  return {o.grad_scale, 1 - o.lr * o.weight_decay, o.beta1, 1 - o.beta1, o.beta2, 1 - o.beta2, o.lr / correction1,
          1 / correction2, o.eps};
}

std::vector<Sample> samples(int arity, const Attrs& attrs) {
  std::vector<Sample> list = facets::pointwise_samples(arity, std::array{DType::f32}, 0.01, 2.0, attrs);
  std::erase_if(list, [](const Sample& s) { return s.name.starts_with("broadcast"); });
  return list;
}

std::string sharding(const OpCall& call) {
  std::string dims, inputs, outputs;
  for (int d = 0; d < call[0].ndim(); ++d) dims += static_cast<char>('a' + d);
  for (size_t i = 0; i < call.inputs.size(); ++i) inputs += fmt::format("#x{}[{}] ", i, dims);
  for (int k = 0; k < call.op.num_outputs; ++k) outputs += fmt::format(" y{}[{}]", k, dims);
  return fmt::format("{}->{} | |", inputs, outputs);
}

constexpr const char* kNoGradient = "an optimizer writes its parameters in place, outside of any tape";

const OpDef kAdamW{.name = "adamw_step_", .num_inputs = 4, .num_outputs = 3, .writes = {0, 2, 3, -1}, .infer = infer,
                   .reference = reference_adamw, .gradient = {.none = kNoGradient},
                   .recipe = {.build = build_adamw, .params = params_of<AdamWAttrs>}, .sharding = sharding,
                   .samples = [] { return samples(4, Attrs::of(attrs_of({.lr = 0.01, .step = 3, .grad_scale = 0.5}))); }};
const OpDef kSgd{.name = "sgd_step_", .num_inputs = 3, .num_outputs = 2, .writes = {0, 2, -1, -1}, .infer = infer,
                 .reference = reference_sgd, .gradient = {.none = kNoGradient},
                 .recipe = {.build = build_sgd, .params = params_of<SgdAttrs>}, .sharding = sharding,
                 .samples = [] { return samples(3, Attrs::of(SgdAttrs{0.5, 0.1, 0.9, 0.01})); }};

void check(const char* name, std::initializer_list<Tensor> tensors) {
  const Tensor& first = *tensors.begin();
  for (const Tensor& t : tensors) {
    TUTTI_CHECK(t.sizes() == first.sizes() && t.dtype() == DType::f32,
                "{}: parameter, gradient and state must be f32 of one shape; got {} beside {}", name, describe(t), describe(first));
  }
}

}  // namespace

void adamw_step_(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v, const AdamWStep& options) {
  check("adamw_step_", {param, grad, m, v});
  TUTTI_CHECK(options.step >= 1, "adamw_step_: step is {}; the first step is 1", options.step);
  const Tensor inputs[] = {param, grad, m, v};
  Tensor outputs[3];
  apply(kAdamW, inputs, Attrs::of(attrs_of(options)), outputs);
}

void sgd_step_(const Tensor& param, const Tensor& grad, const Tensor& buffer, const SgdStep& options) {
  check("sgd_step_", {param, grad, buffer});
  const Tensor inputs[] = {param, grad, buffer};
  Tensor outputs[2];
  apply(kSgd, inputs, Attrs::of(SgdAttrs{options.grad_scale, options.weight_decay, options.momentum, options.lr}), outputs);
}

}  // namespace tutti

TUTTI_OPS(optimizer_step, &::tutti::kAdamW, &::tutti::kSgd)
