#include "tutti/ops/rms_norm.h"

#include <cmath>

#include "tutti/ops/creation.h"
#include "tutti/ops/norm/facets.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using namespace facets;

extern const OpDef kRmsNorm, kRmsNormBackward, kRmsNormWeight;

struct RmsAttrs {
  double eps;
  bool zero_centered = false;
  static constexpr auto fields() {
    return field_list(field::number<&RmsAttrs::eps>("eps"), field::rule<&RmsAttrs::zero_centered>("zero_centered"));
  }
};
bool is_zero_centered(const OpCall& call) { return call.attrs.as<RmsAttrs>().zero_centered; }

int rms_params(const OpCall& call, codegen::ParamValue* params) {
  params[0].f = call.attrs.as<RmsAttrs>().eps;
  return 1;
}

// By what rows are multiplied, for the weight in input i.
Expr factor_of(RecipeBuilder& b, int i) { return is_zero_centered(b.call) ? 1.0 + widened(b, i) : widened(b, i); }
std::vector<double> factors(const OpCall& call, size_t i, const Extents& sizes) {
  std::vector<double> w = values(call[i], sizes);
  if (is_zero_centered(call)) {
    for (double& value : w) value += 1;
  }
  return w;
}

void build_rms(RecipeBuilder& b) {
  const Expr x = widened(b, 0), w = factor_of(b, 1);
  const Expr mean = b.reduce(ReduceOp::sum, x * x) / b.row_length(x.dtype());
  const Expr r = apply_scalar(ScalarOp::rsqrt, mean + b.param(0, x.dtype()));
  b.out(x * r * w);
  b.out(r);
}

void reference_rms(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  const std::vector<double> x = values(call[0], sizes), w = factors(call, 1, sizes);
  for_each_row(call[0], [&](int64_t row, int64_t n) {
    double sum = 0;
    for (int64_t i = row * n; i < row * n + n; ++i) sum += x[i] * x[i];
    const double r = 1 / std::sqrt(sum / static_cast<double>(n) + call.attrs.as<RmsAttrs>().eps);
    for (int64_t i = row * n; i < row * n + n; ++i) write_double(outputs[0], i, x[i] * r * w[i]);
    write_double(outputs[1], row, r);
  });
}

void vjp_rms(const VjpCall& call, std::span<Tensor> grads) {
  const Tensor &g = call.grads[0], &x = call.inputs[0], &w = call.inputs[1], &r = call.outputs[1];
  TUTTI_CHECK(!call.grads[1].defined(), "rms_norm: the statistics output has no gradient");
  if (!g.defined()) return;
  if (call.needs(0)) grads[0] = call_op(kRmsNormBackward, call.attrs, x, g, w, r);
  if (call.needs(1)) {
    const Tensor inputs[] = {x, g, r};
    grads[1] = apply1(kRmsNormWeight, inputs, Attrs::of(facets::WeightAttrs{w.ndim()}));
  }
}

// dx = r * (g w - x r^2 mean(g w x))
void build_rms_backward(RecipeBuilder& b) {
  const Expr x = widened(b, 0), gw = widened(b, 1) * factor_of(b, 2), r = widened(b, 3);
  const Expr c = b.reduce(ReduceOp::sum, gw * x) / b.row_length(x.dtype());
  b.out(r * (gw - x * (r * r * c)));
}

void reference_rms_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  const auto x = values(call[0], sizes), g = values(call[1], sizes), w = factors(call, 2, sizes),
             r = values(call[3], sizes);
  for_each_row(call[0], [&](int64_t row, int64_t n) {
    double sum = 0;
    for (int64_t i = row * n; i < row * n + n; ++i) sum += g[i] * w[i] * x[i];
    for (int64_t i = row * n; i < row * n + n; ++i)
      write_double(outputs[0], i, r[i] * (g[i] * w[i] - x[i] * r[i] * r[i] * sum / static_cast<double>(n)));
  });
}

void build_rms_weight(RecipeBuilder& b) {
  b.out(b.reduce(ReduceOp::sum, widened(b, 1) * (widened(b, 0) * widened(b, 2))));
}

void reference_rms_weight(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  std::vector<double> x = values(call[0], sizes);
  const auto g = values(call[1], sizes), r = values(call[2], sizes);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= g[i] * r[i];
  sum_over_tokens(call, outputs[0], x);
}

std::vector<Sample> rms_samples(std::string_view kinds) {
  std::vector<Sample> list = norm_samples(kinds, Attrs::of(RmsAttrs{1e-3}));
  for (Sample& sample : norm_samples(kinds, Attrs::of(RmsAttrs{1e-3, true}))) {
    sample.name += "_zero_centered";
    list.push_back(std::move(sample));
  }
  return list;
}

const OpDef kRmsNorm{.name = "rms_norm",
                     .num_inputs = 2,
                     .num_outputs = 2,
                     .infer = infer_norm,
                     .reference = reference_rms,
                     .gradient = {.vjp = vjp_rms, .saves_inputs = 0b11, .saves_outputs = 0b10},
                     .recipe = {.kind = LoopKind::row, .build = build_rms, .per_row = 0b10, .params = rms_params},
                     .sharding = norm_sharding,
                     .samples = [] { return rms_samples("xw"); }};
const OpDef kRmsNormBackward{.name = "rms_norm_backward",
                             .num_inputs = 4,
                             .infer = infer_like_first,
                             .reference = reference_rms_backward,
                             .gradient = {.none = kNormOnce},
                             .recipe = {.kind = LoopKind::row, .build = build_rms_backward},
                             .sharding = norm_sharding,
                             .samples = [] { return rms_samples("xxwr"); },
                             .tolerance = {.f32 = 5e-5}};
const OpDef kRmsNormWeight{.name = "rms_norm_weight",
                           .num_inputs = 3,
                           .infer = infer_weight,
                           .reference = reference_rms_weight,
                           .gradient = {.none = kNormOnce},
                           .recipe = {.kind = LoopKind::row,
                                      .build = build_rms_weight,
                                      .row_dims = weight_row_dims,
                                      .per_row = 0b1,
                                      .leaf = weight_leaf},
                           .sharding = weight_sharding,
                           .samples = [] { return norm_samples("xxr", sample_weight()); },
                           .tolerance = {.f32 = 5e-5}};

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps, NormWeight form) {
  if (!weight.defined()) return rms_norm(x, full_beside(x, {normalized_size("rms_norm", x)}, 1.0, x.dtype()), eps);
  check_norm("rms_norm", x, weight);
  const Tensor inputs[] = {x, weight};
  Tensor outputs[2];
  apply(kRmsNorm, inputs, Attrs::of(RmsAttrs{eps, form == NormWeight::zero_centered}), outputs);
  return outputs[0];
}

}  // namespace tutti

TUTTI_OPS(rms_norm, &::tutti::kRmsNorm, &::tutti::kRmsNormBackward, &::tutti::kRmsNormWeight)
