#include "tutti/ops/layer_norm.h"

#include <cmath>

#include "tutti/ops/creation.h"
#include "tutti/ops/norm/facets.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using namespace facets;

extern const OpDef kLayerNorm, kLayerNormBackward, kLayerNormWeight;

void build_layer(RecipeBuilder& b) {
  const Expr x = widened(b, 0), n = b.row_length(x.dtype());
  const Expr mean = b.reduce(ReduceOp::sum, x) / n;
  const Expr d = x - mean;
  const Expr r = apply_scalar(ScalarOp::rsqrt, b.reduce(ReduceOp::sum, d * d) / n + b.param(0, x.dtype()));
  b.out(d * r * widened(b, 1) + widened(b, 2));
  b.out(mean);
  b.out(r);
}

void reference_layer(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  const auto x = values(call[0], sizes), w = values(call[1], sizes), bias = values(call[2], sizes);
  for_each_row(call[0], [&](int64_t row, int64_t n) {
    double mean = 0, var = 0;
    for (int64_t i = row * n; i < row * n + n; ++i) mean += x[i] / static_cast<double>(n);
    for (int64_t i = row * n; i < row * n + n; ++i) var += (x[i] - mean) * (x[i] - mean) / static_cast<double>(n);
    const double r = 1 / std::sqrt(var + call.attrs.as<NormAttrs>().eps);
    for (int64_t i = row * n; i < row * n + n; ++i) write_double(outputs[0], i, (x[i] - mean) * r * w[i] + bias[i]);
    write_double(outputs[1], row, mean);
    write_double(outputs[2], row, r);
  });
}

void vjp_layer(const VjpCall& call, std::span<Tensor> grads) {
  const Tensor &g = call.grads[0], &x = call.inputs[0], &w = call.inputs[1];
  const Tensor &mean = call.outputs[1], &r = call.outputs[2];
  TUTTI_CHECK(!call.grads[1].defined() && !call.grads[2].defined(),
              "layer_norm: the statistics outputs have no gradient");
  if (!g.defined()) return;
  if (call.needs(0)) grads[0] = call_op(kLayerNormBackward, {}, x, g, w, mean, r);
  if (call.needs(1) || call.needs(2)) {
    const Tensor inputs[] = {x, g, mean, r};
    Tensor outputs[2];
    apply(kLayerNormWeight, inputs, Attrs::of(facets::WeightAttrs{w.ndim()}), outputs);
    grads[1] = outputs[0];
    grads[2] = outputs[1];
  }
}

// dx = r * (gw - mean(gw) - xhat * mean(gw xhat))
void build_layer_backward(RecipeBuilder& b) {
  const Expr gw = widened(b, 1) * widened(b, 2), r = widened(b, 4), n = b.row_length(gw.dtype());
  const Expr xhat = (widened(b, 0) - widened(b, 3)) * r;
  const Expr m1 = b.reduce(ReduceOp::sum, gw) / n, m2 = b.reduce(ReduceOp::sum, gw * xhat) / n;
  b.out(r * (gw - m1 - xhat * m2));
}

void reference_layer_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  const auto x = values(call[0], sizes), g = values(call[1], sizes), w = values(call[2], sizes),
             mean = values(call[3], sizes), r = values(call[4], sizes);
  for_each_row(call[0], [&](int64_t row, int64_t n) {
    double m1 = 0, m2 = 0;
    for (int64_t i = row * n; i < row * n + n; ++i) {
      m1 += g[i] * w[i] / static_cast<double>(n);
      m2 += g[i] * w[i] * (x[i] - mean[i]) * r[i] / static_cast<double>(n);
    }
    for (int64_t i = row * n; i < row * n + n; ++i)
      write_double(outputs[0], i, r[i] * (g[i] * w[i] - m1 - (x[i] - mean[i]) * r[i] * m2));
  });
}

void build_layer_weight(RecipeBuilder& b) {
  const Expr g = widened(b, 1);
  b.out(b.reduce(ReduceOp::sum, g * ((widened(b, 0) - widened(b, 2)) * widened(b, 3))));
  b.out(b.reduce(ReduceOp::sum, g));
}

void reference_layer_weight(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  auto x = values(call[0], sizes);
  const auto g = values(call[1], sizes), mean = values(call[2], sizes), r = values(call[3], sizes);
  for (size_t i = 0; i < x.size(); ++i) x[i] = g[i] * (x[i] - mean[i]) * r[i];
  sum_over_tokens(call, outputs[0], x);
  sum_over_tokens(call, outputs[1], g);
}

const OpDef kLayerNorm{.name = "layer_norm",
                       .num_inputs = 3,
                       .num_outputs = 3,
                       .infer = infer_norm,
                       .reference = reference_layer,
                       .gradient = {.vjp = vjp_layer, .saves_inputs = 0b11, .saves_outputs = 0b110},
                       .recipe = {.kind = LoopKind::row, .build = build_layer, .per_row = 0b110, .params = eps_param},
                       .sharding = norm_sharding,
                       .samples = [] { return norm_samples("xww", sample_eps()); }};
const OpDef kLayerNormBackward{.name = "layer_norm_backward",
                               .num_inputs = 5,
                               .infer = infer_like_first,
                               .reference = reference_layer_backward,
                               .gradient = {.none = kNormOnce},
                               .recipe = {.kind = LoopKind::row, .build = build_layer_backward},
                               .sharding = norm_sharding,
                               .samples = [] { return norm_samples("xxwrr", sample_eps()); },
                               .tolerance = {.f32 = 5e-5}};
const OpDef kLayerNormWeight{.name = "layer_norm_weight",
                             .num_inputs = 4,
                             .num_outputs = 2,
                             .infer = infer_weight,
                             .reference = reference_layer_weight,
                             .gradient = {.none = kNormOnce},
                             .recipe = {.kind = LoopKind::row,
                                        .build = build_layer_weight,
                                        .row_dims = weight_row_dims,
                                        .per_row = 0b11,
                                        .leaf = weight_leaf},
                             .sharding = weight_sharding,
                             .samples = [] { return norm_samples("xxrr", sample_weight()); },
                             .tolerance = {.f32 = 5e-5}};

}  // namespace

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  // -0.0 is what adding does not change, zeros included.
  if (!weight.defined())
    return layer_norm(x, full_beside(x, {normalized_size("layer_norm", x)}, 1.0, x.dtype()), bias, eps);
  if (!bias.defined())
    return layer_norm(x, weight, full_beside(x, {normalized_size("layer_norm", x)}, -0.0, x.dtype()), eps);
  check_norm("layer_norm", x, weight);
  TUTTI_CHECK(weight.ndim() == 1 && bias.sizes() == weight.sizes(),
              "layer_norm: weight is {}, bias {}; expected both [{}]", weight.sizes(), bias.sizes(), x.size(-1));
  const Tensor inputs[] = {x, weight, bias};
  Tensor outputs[3];
  apply(kLayerNorm, inputs, Attrs::of(NormAttrs{eps}), outputs);
  return outputs[0];
}

}  // namespace tutti

TUTTI_OPS(layer_norm, &::tutti::kLayerNorm, &::tutti::kLayerNormBackward, &::tutti::kLayerNormWeight)
