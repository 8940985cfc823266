#include "tutti/ops/norm.h"

#include <cmath>

#include "tutti/ops/engine/facets.h"
#include "tutti/ops/sum_to.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using facets::for_each_row;
using facets::values;

extern const OpDef kRmsNorm, kRmsNormBackward, kRmsNormWeight, kLayerNorm, kLayerNormBackward, kLayerNormWeight;

struct NormAttrs {
  double eps;
};
int eps_param(const OpCall& call, codegen::ParamValue* params) {
  params[0].f = call.attrs.as<NormAttrs>().eps;
  return 1;
}

DType stats_dtype(DType dtype) { return compute_dtype(dtype); }

// Sizes of x with the last dim 1: one statistic per row.
Shape row_sizes(const Tensor& x) {
  Shape sizes = x.sizes();
  sizes.back() = 1;
  return sizes;
}

// ---- rms_norm: y, rstd ----------------------------------------------------------------------------------------------

void infer_norm(const OpCall& call, OutputMetas& out) {
  out.add(call[0].dtype(), call[0].sizes());
  out.add(stats_dtype(call[0].dtype()), row_sizes(call[0]));
}

Expr widened(RecipeBuilder& b, int i) { return cast(b.in(i), stats_dtype(b.call[0].dtype())); }

void build_rms(RecipeBuilder& b) {
  const Expr x = widened(b, 0), w = widened(b, 1);
  const Expr mean = b.reduce(ReduceOp::sum, x * x) / b.row_length(x.dtype());
  const Expr r = apply_scalar(ScalarOp::rsqrt, mean + b.param(0, x.dtype()));
  b.out(x * r * w);
  b.out(r);
}

void reference_rms(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  const std::vector<double> x = values(call[0], sizes), w = values(call[1], sizes);
  for_each_row(call[0], [&](int64_t row, int64_t n) {
    double sum = 0;
    for (int64_t i = row * n; i < row * n + n; ++i) sum += x[i] * x[i];
    const double r = 1 / std::sqrt(sum / static_cast<double>(n) + call.attrs.as<NormAttrs>().eps);
    for (int64_t i = row * n; i < row * n + n; ++i) facets::write_double(outputs[0], i, x[i] * r * w[i]);
    facets::write_double(outputs[1], row, r);
  });
}

// The dims of x that `weight` does not have: the tokens.
Dims token_dims(const OpCall& call, int weight_ndim) {
  Dims dims;
  for (int d = 0; d < call[0].ndim() - weight_ndim; ++d) dims.push_back(d);
  return dims;
}

void vjp_rms(const VjpCall& call, std::span<Tensor> grads) {
  const Tensor &g = call.grads[0], &x = call.inputs[0], &w = call.inputs[1], &r = call.outputs[1];
  TUTTI_CHECK(!call.grads[1].defined(), "rms_norm: the statistics output has no gradient");
  if (!g.defined()) return;
  if (call.needs(0)) grads[0] = call_op(kRmsNormBackward, {}, x, g, w, r);
  if (call.needs(1)) {
    const Tensor inputs[] = {x, g, r};
    grads[1] = apply1(kRmsNormWeight, inputs, Attrs::of(int64_t{w.ndim()}));
  }
}

// dx = r * (g w - x r^2 mean(g w x))
void infer_like_first(const OpCall& call, OutputMetas& out) { out.add(call[0].dtype(), call[0].sizes()); }

void build_rms_backward(RecipeBuilder& b) {
  const Expr x = widened(b, 0), gw = widened(b, 1) * widened(b, 2), r = widened(b, 3);
  const Expr c = b.reduce(ReduceOp::sum, gw * x) / b.row_length(x.dtype());
  b.out(r * (gw - x * (r * r * c)));
}

void reference_rms_backward(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  const auto x = values(call[0], sizes), g = values(call[1], sizes), w = values(call[2], sizes), r = values(call[3], sizes);
  for_each_row(call[0], [&](int64_t row, int64_t n) {
    double sum = 0;
    for (int64_t i = row * n; i < row * n + n; ++i) sum += g[i] * w[i] * x[i];
    for (int64_t i = row * n; i < row * n + n; ++i)
      facets::write_double(outputs[0], i, r[i] * (g[i] * w[i] - x[i] * r[i] * r[i] * sum / static_cast<double>(n)));
  });
}

// ---- gradients of the weights: sums over tokens ---------------------------------------------------------------------

void infer_weight(const OpCall& call, OutputMetas& out) {
  Shape sizes;
  const int64_t ndim = call.attrs.as<int64_t>();
  for (int64_t d = call[0].ndim() - ndim; d < call[0].ndim(); ++d) sizes.push_back(call[0].size(d));
  for (int k = 0; k < call.op.num_outputs; ++k) out.add(stats_dtype(call[0].dtype()), sizes);
}
Dims weight_row_dims(const OpCall& call) { return token_dims(call, static_cast<int>(call.attrs.as<int64_t>())); }
int64_t grain(const OpCall&) { return token_grain(); }

void build_rms_weight(RecipeBuilder& b) { b.out(b.reduce(ReduceOp::sum, widened(b, 1) * (widened(b, 0) * widened(b, 2)))); }

void sum_over_tokens(const OpCall& call, const Tensor& output, const std::vector<double>& terms) {
  const int64_t n = output.numel(), tokens = n == 0 ? 0 : call[0].numel() / n;
  for (int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (int64_t t = 0; t < tokens; ++t) sum += terms[static_cast<size_t>(t * n + i)];
    facets::write_double(output, i, sum);
  }
}

void reference_rms_weight(const OpCall& call, std::span<const Tensor> outputs) {
  const Extents sizes = call[0].extents();
  std::vector<double> x = values(call[0], sizes);
  const auto g = values(call[1], sizes), r = values(call[2], sizes);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= g[i] * r[i];
  sum_over_tokens(call, outputs[0], x);
}

// ---- layer_norm: y, mean, rstd --------------------------------------------------------------------------------------

void infer_layer(const OpCall& call, OutputMetas& out) {
  infer_norm(call, out);
  out.add(stats_dtype(call[0].dtype()), row_sizes(call[0]));
}

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
    for (int64_t i = row * n; i < row * n + n; ++i) facets::write_double(outputs[0], i, (x[i] - mean) * r * w[i] + bias[i]);
    facets::write_double(outputs[1], row, mean);
    facets::write_double(outputs[2], row, r);
  });
}

void vjp_layer(const VjpCall& call, std::span<Tensor> grads) {
  const Tensor &g = call.grads[0], &x = call.inputs[0], &w = call.inputs[1];
  const Tensor &mean = call.outputs[1], &r = call.outputs[2];
  TUTTI_CHECK(!call.grads[1].defined() && !call.grads[2].defined(), "layer_norm: the statistics outputs have no gradient");
  if (!g.defined()) return;
  if (call.needs(0)) grads[0] = call_op(kLayerNormBackward, {}, x, g, w, mean, r);
  if (call.needs(1) || call.needs(2)) {
    const Tensor inputs[] = {x, g, mean, r};
    Tensor outputs[2];
    apply(kLayerNormWeight, inputs, Attrs::of(int64_t{w.ndim()}), outputs);
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
      facets::write_double(outputs[0], i, r[i] * (g[i] * w[i] - m1 - (x[i] - mean[i]) * r[i] * m2));
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

// ---- sharding, samples ----------------------------------------------------------------------------------------------

// Letters of x: tokens a, b, ... and the normalized dim H whole; the other operands follow by size.
std::string letters(const Tensor& x, const Tensor& t) {
  std::string text;
  for (int d = 0; d < t.ndim(); ++d) {
    const int at = x.ndim() - t.ndim() + d;
    const bool last = at == x.ndim() - 1;
    text += t.extents()[d] == 1 && x.extents()[at] != 1 ? '1' : last ? 'H' : static_cast<char>('a' + at);
  }
  return text;
}

std::string norm_sharding(const OpCall& call) {
  const Tensor& x = call[0];
  std::string text, row = letters(x, x);
  for (const Tensor& t : call.inputs) text += fmt::format("#x[{}] ", letters(x, t));
  text += fmt::format("-> y[{}]", row);
  row.back() = '1';
  for (int k = 1; k < call.op.num_outputs; ++k) text += fmt::format(" s[{}]", row);
  return text + " | |";
}

std::string weight_sharding(const OpCall& call) {
  const Tensor& x = call[0];
  std::string text, tokens;
  for (const Tensor& t : call.inputs) text += fmt::format("#x[{}] ", letters(x, t));
  const std::string all = letters(x, x);
  const size_t cut = static_cast<size_t>(x.ndim() - call.attrs.as<int64_t>());
  text += "->";
  for (int k = 0; k < call.op.num_outputs; ++k) text += fmt::format(" y[{}]", all.substr(cut));
  return fmt::format("{} | sum{{{}}} |", text, all.substr(0, cut));
}

// Inputs of the given sizes relative to x: 'x' like x, 'w' last dim, 'r' one per row.
template <int kNdimAttr>
std::vector<Sample> norm_samples(std::string_view kinds) {
  std::vector<Sample> list;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    for (const Extents& sizes : {Extents{5, 7}, Extents{3, 2, 33}, Extents{2, 600}, Extents{1, 1}, Extents{130, 4}}) {
      Sample s{fmt::format("{}_{}", name_of(dtype), list.size()), {}, {}};
      for (size_t i = 0; i < kinds.size(); ++i) {
        Extents e = sizes;
        if (kinds[i] == 'w') e = {sizes.back()};
        if (kinds[i] == 'r') e.back() = 1;
        const bool positive = kinds[i] == 'r' && i + 1 == kinds.size();
        s.inputs.push_back(facets::sample_tensor(i + 1, e, kinds[i] == 'r' ? stats_dtype(dtype) : dtype, positive ? 0.5 : -2.0, 2.0));
      }
      s.attrs = kNdimAttr ? Attrs::of(int64_t{kNdimAttr}) : Attrs::of(NormAttrs{1e-3});
      list.push_back(s);
    }
  }
  return list;
}

constexpr const char* kOnce = "gradients of this gradient are not defined; write the norm with mul, sum and rsqrt to have them";

const OpDef kRmsNorm{.name = "rms_norm", .num_inputs = 2, .num_outputs = 2, .infer = infer_norm, .reference = reference_rms,
                     .gradient = {.vjp = vjp_rms, .saves_inputs = 0b11, .saves_outputs = 0b10},
                     .recipe = {.kind = LoopKind::row, .build = build_rms, .per_row = 0b10, .params = eps_param},
                     .sharding = norm_sharding, .samples = [] { return norm_samples<0>("xw"); }};
const OpDef kRmsNormBackward{.name = "rms_norm_backward", .num_inputs = 4, .infer = infer_like_first,
                             .reference = reference_rms_backward, .gradient = {.none = kOnce},
                             .recipe = {.kind = LoopKind::row, .build = build_rms_backward},
                             .sharding = norm_sharding, .samples = [] { return norm_samples<0>("xxwr"); },
                             .tolerance = {.f32 = 5e-5}};
const OpDef kRmsNormWeight{.name = "rms_norm_weight", .num_inputs = 3, .infer = infer_weight,
                           .reference = reference_rms_weight, .gradient = {.none = kOnce},
                           .recipe = {.kind = LoopKind::row, .build = build_rms_weight, .row_dims = weight_row_dims,
                                      .per_row = 0b1, .leaf = grain},
                           .sharding = weight_sharding, .samples = [] { return norm_samples<1>("xxr"); },
                           .tolerance = {.f32 = 5e-5}};
const OpDef kLayerNorm{.name = "layer_norm", .num_inputs = 3, .num_outputs = 3, .infer = infer_layer,
                       .reference = reference_layer,
                       .gradient = {.vjp = vjp_layer, .saves_inputs = 0b11, .saves_outputs = 0b110},
                       .recipe = {.kind = LoopKind::row, .build = build_layer, .per_row = 0b110, .params = eps_param},
                       .sharding = norm_sharding, .samples = [] { return norm_samples<0>("xww"); }};
const OpDef kLayerNormBackward{.name = "layer_norm_backward", .num_inputs = 5, .infer = infer_like_first,
                               .reference = reference_layer_backward, .gradient = {.none = kOnce},
                               .recipe = {.kind = LoopKind::row, .build = build_layer_backward},
                               .sharding = norm_sharding, .samples = [] { return norm_samples<0>("xxwrr"); },
                               .tolerance = {.f32 = 5e-5}};
const OpDef kLayerNormWeight{.name = "layer_norm_weight", .num_inputs = 4, .num_outputs = 2, .infer = infer_weight,
                             .reference = reference_layer_weight, .gradient = {.none = kOnce},
                             .recipe = {.kind = LoopKind::row, .build = build_layer_weight, .row_dims = weight_row_dims,
                                        .per_row = 0b11, .leaf = grain},
                             .sharding = weight_sharding, .samples = [] { return norm_samples<1>("xxrr"); },
                             .tolerance = {.f32 = 5e-5}};

void check_norm(const char* name, const Tensor& x, const Tensor& weight) {
  TUTTI_CHECK(x.ndim() >= 1 && is_floating(x.dtype()), "{}: x must be a float tensor of at least one dim, it is {}", name, describe(x));
  bool fits = weight.ndim() >= 1 && weight.ndim() <= x.ndim();
  for (int d = 1; fits && d <= weight.ndim(); ++d) fits = weight.size(-d) == x.size(-d);
  TUTTI_CHECK(fits, "{}: weight is {}, which are not the trailing dims of x {}", name, weight.sizes(), x.sizes());
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps) {
  check_norm("rms_norm", x, weight);
  const Tensor inputs[] = {x, weight};
  Tensor outputs[2];
  apply(kRmsNorm, inputs, Attrs::of(NormAttrs{eps}), outputs);
  return outputs[0];
}

Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps) {
  check_norm("layer_norm", x, weight);
  TUTTI_CHECK(weight.ndim() == 1 && bias.sizes() == weight.sizes(), "layer_norm: weight is {}, bias {}; expected both [{}]",
              weight.sizes(), bias.sizes(), x.size(-1));
  const Tensor inputs[] = {x, weight, bias};
  Tensor outputs[3];
  apply(kLayerNorm, inputs, Attrs::of(NormAttrs{eps}), outputs);
  return outputs[0];
}

}  // namespace tutti

TUTTI_OPS(norm, &::tutti::kRmsNorm, &::tutti::kRmsNormBackward, &::tutti::kRmsNormWeight, &::tutti::kLayerNorm,
          &::tutti::kLayerNormBackward, &::tutti::kLayerNormWeight)
