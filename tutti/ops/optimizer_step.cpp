#include "tutti/ops/optimizer_step.h"

#include <cmath>

#include "tutti/ops/engine/facets.h"

namespace tutti {
namespace {

// Run-time scalars, in the order the recipes read them; rounded to f32 in the kernel. What changes from step to step is
// an input [] instead: a compiled graph holds attrs.
struct AdamWAttrs {
  double beta1, one_minus_beta1, beta2, one_minus_beta2, eps;
  static constexpr auto fields() {
    return field_list(
        field::number<&AdamWAttrs::beta1>("beta1"), field::number<&AdamWAttrs::one_minus_beta1>("one_minus_beta1"),
        field::number<&AdamWAttrs::beta2>("beta2"), field::number<&AdamWAttrs::one_minus_beta2>("one_minus_beta2"),
        field::number<&AdamWAttrs::eps>("eps"));
  }
};
struct SgdAttrs {
  double weight_decay, momentum;
  static constexpr auto fields() {
    return field_list(field::number<&SgdAttrs::weight_decay>("weight_decay"),
                      field::number<&SgdAttrs::momentum>("momentum"));
  }
};

template <class T>
int params_of(const OpCall& call, codegen::ParamValue* params) {
  const T& attrs = call.attrs.as<T>();
  const double* values = reinterpret_cast<const double*>(&attrs);
  for (size_t i = 0; i < sizeof(T) / sizeof(double); ++i) params[i].f = values[i];
  return static_cast<int>(sizeof(T) / sizeof(double));
}

// Inputs param, grad, state..., numbers []...; outputs are the param and the states, in place.
void infer(const OpCall& call, OutputMetas& out) {
  for (const int8_t written : call.op.writes) {
    if (written >= 0) out.add(call[static_cast<size_t>(written)].dtype(), call[static_cast<size_t>(written)].sizes());
  }
}

void build_adamw(RecipeBuilder& b) {
  const auto param = [&](int i) { return b.param(i, DType::f32); };
  const Expr grad_scale = b.in(4), decay = b.in(5), step_size = b.in(6), inv_correction2 = b.in(7);
  const Expr p = b.in(0), g = cast(b.in(1), DType::f32) * grad_scale;
  const Expr m = param(0) * b.in(2) + param(1) * g;
  const Expr v = param(2) * b.in(3) + param(3) * (g * g);
  const Expr denominator = apply_scalar(ScalarOp::sqrt, v * inv_correction2) + param(4);
  b.out(p * decay - step_size * m / denominator);
  b.out(m);
  b.out(v);
}

void build_sgd(RecipeBuilder& b) {
  const auto param = [&](int i) { return b.param(i, DType::f32); };
  const Expr grad_scale = b.in(3), lr = b.in(4);
  const Expr p = b.in(0), g = cast(b.in(1), DType::f32) * grad_scale + param(0) * p;
  const Expr buffer = param(1) * b.in(2) + g;
  b.out(p - lr * buffer);
  b.out(buffer);
}

void reference_adamw(const OpCall& call, std::span<const Tensor> outputs) {
  const AdamWAttrs& a = call.attrs.as<AdamWAttrs>();
  facets::for_each_element(call[0].extents(), call.inputs, [&](int64_t, const int64_t* at) {
    const auto in = [&](size_t i) { return facets::read_double(call[i], at[i]); };
    const double g = in(1) * in(4);
    const double m = a.beta1 * in(2) + a.one_minus_beta1 * g, v = a.beta2 * in(3) + a.one_minus_beta2 * g * g;
    const double p = in(0) * in(5) - in(6) * m / (std::sqrt(v * in(7)) + a.eps);
    facets::write_double(outputs[0], at[0], p);
    facets::write_double(outputs[1], at[2], m);
    facets::write_double(outputs[2], at[3], v);
  });
}

void reference_sgd(const OpCall& call, std::span<const Tensor> outputs) {
  const SgdAttrs& a = call.attrs.as<SgdAttrs>();
  facets::for_each_element(call[0].extents(), call.inputs, [&](int64_t, const int64_t* at) {
    const auto in = [&](size_t i) { return facets::read_double(call[i], at[i]); };
    const double buffer = a.momentum * in(2) + in(1) * in(3) + a.weight_decay * in(0);
    facets::write_double(outputs[0], at[0], in(0) - in(4) * buffer);
    facets::write_double(outputs[1], at[2], buffer);
  });
}

AdamWAttrs attrs_of(const AdamWStep& o) { return {o.beta1, 1 - o.beta1, o.beta2, 1 - o.beta2, o.eps}; }

Tensor number() { return Tensor::empty({}, DType::f32); }
void set_number(const Tensor& number, double value) { *number.data<float>() = static_cast<float>(value); }

std::vector<Sample> samples(int arity, std::initializer_list<float> numbers, const Attrs& attrs) {
  std::vector<Sample> list = facets::pointwise_samples(arity, std::array{DType::f32}, 0.01, 2.0, attrs);
  std::erase_if(list, [](const Sample& s) { return s.name.starts_with("broadcast"); });
  for (Sample& s : list) {
    for (const float n : numbers) {
      s.inputs.push_back(number());
      set_number(s.inputs.back(), n);
    }
  }
  return list;
}

std::string sharding(const OpCall& call) {
  std::string dims, inputs, outputs;
  for (int d = 0; d < call[0].ndim(); ++d) dims += static_cast<char>('a' + d);
  for (size_t i = 0; i < call.inputs.size(); ++i)
    inputs += fmt::format("#x{}[{}] ", i, i <= static_cast<size_t>(call.op.num_outputs) ? dims : "");
  for (int k = 0; k < call.op.num_outputs; ++k) outputs += fmt::format(" y{}[{}]", k, dims);
  return fmt::format("{}->{} | |", inputs, outputs);
}

constexpr const char* kNoGradient = "an optimizer writes its parameters in place, outside of any tape";

const OpDef kAdamW{
    .name = "adamw_step_",
    .num_inputs = 8,
    .num_outputs = 3,
    .writes = {0, 2, 3, -1},
    .infer = infer,
    .reference = reference_adamw,
    .gradient = {.none = kNoGradient},
    .recipe = {.build = build_adamw, .params = params_of<AdamWAttrs>},
    .sharding = sharding,
    .samples = [] { return samples(4, {0.5f, 0.999f, 0.04f, 7.0f}, Attrs::of(attrs_of({.lr = 0.01, .step = 3}))); }};
const OpDef kSgd{.name = "sgd_step_",
                 .num_inputs = 5,
                 .num_outputs = 2,
                 .writes = {0, 2, -1, -1},
                 .infer = infer,
                 .reference = reference_sgd,
                 .gradient = {.none = kNoGradient},
                 .recipe = {.build = build_sgd, .params = params_of<SgdAttrs>},
                 .sharding = sharding,
                 .samples = [] { return samples(3, {0.5f, 0.01f}, Attrs::of(SgdAttrs{0.1, 0.9})); }};

void check(const char* name, std::initializer_list<Tensor> tensors) {
  const Tensor& first = *tensors.begin();
  for (const Tensor& t : tensors) {
    TUTTI_CHECK(t.sizes() == first.sizes() && t.dtype() == DType::f32,
                "{}: parameter, gradient and state must be f32 of one shape; got {} beside {}", name, describe(t),
                describe(first));
  }
}

}  // namespace

AdamWNumbers::AdamWNumbers() : grad_scale(number()), decay(number()), step_size(number()), inv_correction2(number()) {}

void AdamWNumbers::set(const AdamWStep& o) {
  TUTTI_CHECK(o.step >= 1, "adamw_step_: step is {}; the first step is 1", o.step);
  set_number(grad_scale, o.grad_scale);
  set_number(decay, 1 - o.lr * o.weight_decay);
  set_number(step_size, o.lr / (1 - std::pow(o.beta1, static_cast<double>(o.step))));
  set_number(inv_correction2, 1 / (1 - std::pow(o.beta2, static_cast<double>(o.step))));
}

void adamw_step_(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v, const AdamWNumbers& numbers,
                 const AdamWStep& options) {
  check("adamw_step_", {param, grad, m, v});
  const Tensor inputs[] = {
      param, grad, m, v, numbers.grad_scale, numbers.decay, numbers.step_size, numbers.inv_correction2};
  Tensor outputs[3];
  apply(kAdamW, inputs, Attrs::of(attrs_of(options)), outputs);
}

void adamw_step_(const Tensor& param, const Tensor& grad, const Tensor& m, const Tensor& v, const AdamWStep& options) {
  AdamWNumbers numbers;
  numbers.set(options);
  adamw_step_(param, grad, m, v, numbers, options);
}

SgdNumbers::SgdNumbers() : grad_scale(number()), lr(number()) {}

void SgdNumbers::set(const SgdStep& options) {
  set_number(grad_scale, options.grad_scale);
  set_number(lr, options.lr);
}

void sgd_step_(const Tensor& param, const Tensor& grad, const Tensor& buffer, const SgdNumbers& numbers,
               const SgdStep& options) {
  check("sgd_step_", {param, grad, buffer});
  const Tensor inputs[] = {param, grad, buffer, numbers.grad_scale, numbers.lr};
  Tensor outputs[2];
  apply(kSgd, inputs, Attrs::of(SgdAttrs{options.weight_decay, options.momentum}), outputs);
}

void sgd_step_(const Tensor& param, const Tensor& grad, const Tensor& buffer, const SgdStep& options) {
  SgdNumbers numbers;
  numbers.set(options);
  sgd_step_(param, grad, buffer, numbers, options);
}

}  // namespace tutti

TUTTI_OPS(optimizer_step, &::tutti::kAdamW, &::tutti::kSgd)
