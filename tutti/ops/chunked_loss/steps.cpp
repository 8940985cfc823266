#include "tutti/ops/chunked_loss/steps.h"

#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/softmax_nodes.h"
#include "tutti/ops/sum_to.h"

namespace tutti::chunked_loss {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;

const StepAttrs& attrs_of_step(const OpCall& call) { return call.attrs.as<StepAttrs>(); }

enum Param { kFirstClass, kIgnoreIndex, kSoftcap };
int params(const OpCall& call, codegen::ParamValue* values) {
  const StepAttrs& attrs = attrs_of_step(call);
  values[kFirstClass].i = attrs.first_class;
  values[kIgnoreIndex].i = attrs.ignore_index;
  values[kSoftcap].f = attrs.softcap;
  return 3;
}
uint64_t variant(const OpCall& call) {
  const StepAttrs& attrs = attrs_of_step(call);
  return static_cast<uint64_t>(attrs.bias) | static_cast<uint64_t>(attrs.mix) << 1 | static_cast<uint64_t>(attrs.sums) << 2 |
         static_cast<uint64_t>(attrs.softcap != 0) << 3 | static_cast<uint64_t>(attrs.logits) << 8;
}

Expr label_of(RecipeBuilder& b, int i) { return cast(b.in(i), DType::i64); }
Expr is_label(RecipeBuilder& b, Expr label) { return apply_scalar(ScalarOp::eq, b.inner_index() + b.param(kFirstClass, DType::i64), label); }
Expr is_ignored(RecipeBuilder& b, Expr label) { return apply_scalar(ScalarOp::eq, label, b.param(kIgnoreIndex, DType::i64)); }

// The logit of z, and tanh(z / cap) on the way: every step is rounded as the eager op of the same name would.
struct Logit {
  Expr x, tanh;
};
Logit logit(RecipeBuilder& b, int bias) {
  const StepAttrs& attrs = attrs_of_step(b.call);
  Expr x = b.in(0);
  if (attrs.bias) x = stored(x + cast(b.in(bias), x.dtype()), attrs.logits);
  if (attrs.softcap == 0) return {x, x};
  const Expr cap = b.param(kSoftcap, x.dtype()), tanh = stored(apply_scalar(ScalarOp::tanh, stored(x / cap, attrs.logits)), attrs.logits);
  return {stored(tanh * cap, attrs.logits), tanh};
}

void build_statistics(RecipeBuilder& b) {
  const StepAttrs& attrs = attrs_of_step(b.call);
  const Expr x = logit(b, 2).x;
  b.out(b.reduce(ReduceOp::softmax_max, x));
  b.out(b.reduce(ReduceOp::softmax_sum, x));
  b.out(b.reduce(ReduceOp::sum, where(is_label(b, label_of(b, 1)), x, b.constant(-0.0, x.dtype()))));
  if (attrs.mix) b.out(b.reduce(ReduceOp::sum, x * cast(b.in(2 + attrs.bias), x.dtype())));
}

void build_join(RecipeBuilder& b) {
  const int columns = static_cast<int>(b.call.inputs.size() / 2);
  const SoftmaxNode both = combined(b, {b.in(0), b.in(1)}, {b.in(columns), b.in(columns + 1)});
  b.out(both.m);
  b.out(both.l);
  for (int k = 2; k < columns; ++k) b.out(b.in(k) + b.in(columns + k));
}

void build_finish(RecipeBuilder& b) {
  const int columns = static_cast<int>(b.call.inputs.size()) - 1;
  const Expr lse = b.in(0) + apply_scalar(ScalarOp::log, b.in(1)), zero = b.constant(0.0, lse.dtype());
  const Expr ignored = is_ignored(b, label_of(b, columns));
  b.out(where(ignored, zero, lse - b.in(2)));
  b.out(where(ignored, zero, lse));
  if (columns > 3) b.out(where(ignored, zero, b.in(3)));
}

// grad of the loss alone: (p - [label]) g, in the order of cross_entropy_backward. Else p s - [label] g + mix m.
void build_gradient(RecipeBuilder& b) {
  const StepAttrs& attrs = attrs_of_step(b.call);
  const int bias = 4, mix = bias + attrs.bias, sums = mix + 2 * attrs.mix;
  const Logit at = logit(b, bias);
  const DType dtype = at.x.dtype();
  const Expr label = label_of(b, 1), g = cast(b.in(3), dtype), hit = is_label(b, label);
  const Expr p = apply_scalar(ScalarOp::exp, at.x - cast(b.in(2), dtype));
  Expr d = where(hit, p - b.constant(1.0, dtype), p) * g;
  if (attrs.sums) {
    d = p * cast(b.in(sums), dtype);
    d = where(hit, d - g, d);
    if (attrs.mix) d = apply_scalar(ScalarOp::fma, cast(b.in(mix), dtype), cast(b.in(mix + 1), dtype), d);
  }
  if (attrs.softcap != 0) {
    const auto rounded = [&](Expr e) { return stored(e, attrs.logits); };
    const Expr cap = b.param(kSoftcap, dtype), slope = rounded(b.constant(1.0, dtype) - rounded(at.tanh * at.tanh));
    d = rounded(rounded(rounded(rounded(d) * cap) * slope) / cap);
  }
  b.out(where(is_ignored(b, label), b.constant(0.0, dtype), d));
}

void build_sum_rows(RecipeBuilder& b) { b.out(b.reduce(ReduceOp::sum, b.in(0))); }
void build_add(RecipeBuilder& b) { b.out(b.in(0) + b.in(1)); }
void build_convert(RecipeBuilder& b) { b.out(b.in(0)); }

constexpr OpDef step(const char* name, const Recipe& recipe) {
  return {.name = name, .num_inputs = -1, .infer = nullptr, .recipe = recipe};
}

}  // namespace

const OpDef kChunkStatistics = step("chunk_statistics", {.kind = LoopKind::row, .build = build_statistics, .per_row = 0b1111 | kRowsOnly, .params = params,
                                                         .variant = variant, .leaf = [](const OpCall&) { return class_leaf(); }});
const OpDef kJoinStatistics = step("chunk_join_statistics", {.build = build_join, .variant = [](const OpCall& call) { return call.inputs.size(); }});
const OpDef kFinishStatistics = step("chunk_finish_statistics", {.build = build_finish, .params = params, .variant = variant});
const OpDef kChunkGradient = step("chunk_gradient", {.kind = LoopKind::row, .build = build_gradient, .params = params, .variant = variant});
const OpDef kSumRows = step("chunk_sum_rows", {.kind = LoopKind::row, .build = build_sum_rows, .row_dims = [](const OpCall&) { return Dims{0}; },
                                               .per_row = 1, .leaf = [](const OpCall&) { return token_grain(); }});
const OpDef kAddParts = step("chunk_add", {.build = build_add});
const OpDef kConvert = step("chunk_convert", {.build = build_convert});

StepAttrs step_attrs(const OpCall& call, int64_t begin) {
  const LossAttrs& attrs = attrs_of(call);
  return {.first_class = attrs.first_class + begin, .ignore_index = attrs.ignore_index, .softcap = attrs.softcap, .logits = logits_of(call),
          .bias = has_bias(call), .mix = has_mix(call)};
}

void run_step(const OpDef& op, const StepAttrs& attrs, std::span<const Tensor> inputs, std::span<const Tensor> outputs) {
  const Attrs boxed = Attrs::of(attrs);
  run_recipe({op, inputs, boxed}, outputs);
}

}  // namespace tutti::chunked_loss
