#include "tutti/ops/chunked_loss/steps.h"

#include "tutti/ops/cross_entropy.h"
#include "tutti/ops/engine/eager.h"
#include "tutti/ops/engine/sum_of_others.h"
#include "tutti/ops/softmax_rows/nodes.h"
#include "tutti/ops/sum_to.h"

namespace tutti::chunked_loss {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;
using codegen::TreeKind;

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
  return static_cast<uint64_t>(attrs.bias) | static_cast<uint64_t>(attrs.mix) << 1 |
         static_cast<uint64_t>(attrs.mass) << 2 | static_cast<uint64_t>(attrs.softcap != 0) << 3 |
         static_cast<uint64_t>(attrs.logits) << 8;
}

Expr label_of(RecipeBuilder& b, int i) { return cast(b.in(i), DType::i64); }
Expr is_label(RecipeBuilder& b, Expr label) {
  return apply_scalar(ScalarOp::eq, b.inner_index() + b.param(kFirstClass, DType::i64), label);
}
Expr is_ignored(RecipeBuilder& b, Expr label) {
  return apply_scalar(ScalarOp::eq, label, b.param(kIgnoreIndex, DType::i64));
}

// The logit of z, and tanh(z / cap) on the way: every step is rounded as the eager op of the same name would.
struct Logit {
  Expr x, tanh;
};
Logit logit(RecipeBuilder& b, int bias) {
  const StepAttrs& attrs = attrs_of_step(b.call);
  Expr x = b.in(0);
  if (attrs.bias) x = stored(x + cast(b.in(bias), x.dtype()), attrs.logits);
  if (attrs.softcap == 0) return {x, x};
  const Expr cap = b.param(kSoftcap, x.dtype()),
             tanh = stored(apply_scalar(ScalarOp::tanh, stored(x / cap, attrs.logits)), attrs.logits);
  return {stored(tanh * cap, attrs.logits), tanh};
}

void build_statistics(RecipeBuilder& b) {
  const StepAttrs& attrs = attrs_of_step(b.call);
  const Expr x = logit(b, 2).x;
  const auto [m, r] = b.softmax_rest(x, TreeKind::halving);
  b.out(m);
  b.out(r);
  b.out(b.reduce(ReduceOp::sum, where(is_label(b, label_of(b, 1)), x, b.constant(-0.0, x.dtype()))));
  if (!attrs.mix) return;
  const Expr weight = cast(b.in(2 + attrs.bias), x.dtype()), zero = b.constant(0.0, x.dtype()),
             none = b.constant(-0.0, x.dtype());
  const Expr below = where(apply_scalar(ScalarOp::eq, x, m), zero, m - x);  // both may be -inf
  b.out(b.reduce(ReduceOp::sum, where(apply_scalar(ScalarOp::eq, weight, zero), none, weight * below)));
  b.out(b.reduce(ReduceOp::sum, weight));
}

// Sums of weights times distances from a maximum move to the maximum of both parts.
void build_join(RecipeBuilder& b) {
  const int columns = static_cast<int>(b.call.inputs.size() / 2);
  const auto left = [&](int k) { return b.in(k); };
  const auto right = [&](int k) { return b.in(columns + k); };
  const Expr left_m = left(kColumnMaximum), right_m = right(kColumnMaximum), zero = b.constant(0.0, left_m.dtype());
  const RestNode both = combined(b, {left_m, left(kColumnRest)}, {right_m, right(kColumnRest)});
  b.out(both.m);
  b.out(both.r);
  b.out(left(kColumnTarget) + right(kColumnTarget));
  if (columns == kPlainColumns) return;
  const Expr low = apply_scalar(ScalarOp::minimum, left_m, right_m),
             distance = where(apply_scalar(ScalarOp::eq, left_m, right_m), zero, both.m - low);
  const Expr weight = where(apply_scalar(ScalarOp::ge, left_m, right_m), right(kColumnWeight), left(kColumnWeight));
  const Expr mixed = left(kColumnMixed) + right(kColumnMixed);
  b.out(where(apply_scalar(ScalarOp::eq, weight, zero), mixed, apply_scalar(ScalarOp::fma, weight, distance, mixed)));
  b.out(left(kColumnWeight) + right(kColumnWeight));
}

void build_finish(RecipeBuilder& b) {
  const bool mix = attrs_of_step(b.call).mix;
  const int columns = mix ? kMixedColumns : kPlainColumns;
  const RestNode all{b.in(kColumnMaximum), b.in(kColumnRest)};
  const Expr zero = b.constant(0.0, all.m.dtype()), ignored = is_ignored(b, label_of(b, columns));
  b.out(where(ignored, zero, surprise_of(all, b.in(kColumnTarget))));
  b.out(where(ignored, zero, logsumexp_of(all)));
  if (!mix) return;
  const Expr of_maximum = wide_surprise_of(all, all.m);  // NaN when no logit is finite, as for labels
  b.out(where(ignored, zero,
              cast(apply_scalar(ScalarOp::fma, wide(b.in(kColumnWeight)), of_maximum, wide(b.in(kColumnMixed))),
                   zero.dtype())));
}

// (p - [label]) g, in the order of cross_entropy_backward, and p mass and (p sum(mix) - mix) m behind it when they are
// there; the latter as p (sum(mix) - mix) - mix (1 - p), whose terms are small where target and probability are
// nearly 1.
void build_gradient(RecipeBuilder& b) {
  const StepAttrs& attrs = attrs_of_step(b.call);
  const int bias = 5, mix = bias + attrs.bias, mass = mix + 5 * attrs.mix;
  const Logit at = logit(b, bias);
  const DType dtype = at.x.dtype();
  const Expr label = label_of(b, 1), g = cast(b.in(4), dtype);
  const RestNode all{cast(b.in(2), dtype), cast(b.in(3), dtype)};
  Expr d = probability_less(b, all, at.x, is_label(b, label)) * g;
  if (attrs.mass) d = apply_scalar(ScalarOp::fma, probability(b, all, at.x), cast(b.in(mass), dtype), d);
  if (attrs.mix) {
    const Expr weight = cast(b.in(mix), dtype);
    const Expr others = without({b.in(mix + 2), b.in(mix + 3), b.in(mix + 4)}, weight);
    const Expr of_mix =
        apply_scalar(ScalarOp::fma, probability(b, all, at.x), others, weight * probability_less_one(b, all, at.x));
    d = apply_scalar(ScalarOp::fma, of_mix, cast(b.in(mix + 1), dtype), d);
  }
  if (attrs.softcap != 0) {
    const auto rounded = [&](Expr e) { return stored(e, attrs.logits); };
    const Expr cap = b.param(kSoftcap, dtype), slope = rounded(b.constant(1.0, dtype) - rounded(at.tanh * at.tanh));
    d = rounded(rounded(rounded(rounded(d) * cap) * slope) / cap);
  }
  b.out(where(is_ignored(b, label), b.constant(0.0, dtype), d));
}

void build_split_mix(RecipeBuilder& b) {
  const SplitSum<Expr> sum = split_sum(b, cast(b.in(0), b.output_dtypes[0]));
  for (const Expr part : {sum.size, sum.largest, sum.rest}) b.out(part);
}
void build_sum_rows(RecipeBuilder& b) { b.out(b.reduce(ReduceOp::sum, b.in(0))); }
void build_add(RecipeBuilder& b) { b.out(b.in(0) + b.in(1)); }
void build_convert(RecipeBuilder& b) { b.out(b.in(0)); }

constexpr OpDef step(const char* name, const Recipe& recipe) {
  return {.name = name, .num_inputs = -1, .infer = nullptr, .recipe = recipe};
}

}  // namespace

const OpDef kChunkStatistics = step("chunk_statistics", {.kind = LoopKind::row,
                                                         .build = build_statistics,
                                                         .per_row = 0b11111 | kRowsOnly,
                                                         .params = params,
                                                         .variant = variant,
                                                         .leaf = [](const OpCall&) { return class_leaf(); }});
const OpDef kJoinStatistics = step(
    "chunk_join_statistics", {.build = build_join, .variant = [](const OpCall& call) { return call.inputs.size(); }});
const OpDef kFinishStatistics =
    step("chunk_finish_statistics", {.build = build_finish, .params = params, .variant = variant});
const OpDef kChunkGradient =
    step("chunk_gradient", {.kind = LoopKind::row, .build = build_gradient, .params = params, .variant = variant});
const OpDef kSplitMix =
    step("chunk_split_mix",
         {.kind = LoopKind::row, .build = build_split_mix, .per_row = 0b111 | kRowsOnly, .leaf = [](const OpCall&) {
            return class_leaf();
          }});
const OpDef kSumRows = step("chunk_sum_rows", {.kind = LoopKind::row,
                                               .build = build_sum_rows,
                                               .row_dims = [](const OpCall&) { return Dims{0}; },
                                               .per_row = 1,
                                               .leaf = [](const OpCall&) { return token_grain(); }});
const OpDef kAddParts = step("chunk_add", {.build = build_add});
const OpDef kConvert = step("chunk_convert", {.build = build_convert});

StepAttrs step_attrs(const OpCall& call, int64_t begin) {
  const LossAttrs& attrs = attrs_of(call);
  return {.first_class = attrs.first_class + begin,
          .ignore_index = attrs.ignore_index,
          .softcap = attrs.softcap,
          .logits = logits_of(call),
          .bias = has_bias(call),
          .mix = has_mix(call)};
}

void run_step(const OpDef& op, const StepAttrs& attrs, std::span<const Tensor> inputs,
              std::span<const Tensor> outputs) {
  const Attrs boxed = Attrs::of(attrs);
  run_recipe({op, inputs, boxed}, outputs);
}

}  // namespace tutti::chunked_loss
