#include "tutti/ops/attention/steps.h"

#include "tutti/ops/attention.h"
#include "tutti/ops/engine/eager.h"

namespace tutti::attention {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;

int scale_param(const OpCall& call, codegen::ParamValue* params) {
  params[0].f = call.attrs.as<SdpaAttrs>().scale;
  return 1;
}

Expr visible(RecipeBuilder& b, Expr first, Expr last) {
  const Expr i = b.inner_index();
  return apply_scalar(ScalarOp::bit_and, apply_scalar(ScalarOp::ge, i, first), apply_scalar(ScalarOp::le, i, last));
}

void build_block(RecipeBuilder& b) {
  const Expr s = b.in(0), absent = b.constant(-kInf, s.dtype());
  const Expr x = where(visible(b, b.in(1), b.in(2)), s * b.param(0, s.dtype()), absent);
  const auto [m, l] = b.softmax_stats(x);
  const Expr empty = apply_scalar(ScalarOp::eq, m, absent);
  b.out(where(empty, b.constant(0.0, s.dtype()), apply_scalar(ScalarOp::exp, x - m)));
  b.out(m);
  b.out(l);
}

void build_combine(RecipeBuilder& b) {
  const Expr xa = b.in(0), xb = b.in(1), ma = b.in(2), mb = b.in(3), absent = b.constant(-kInf, xa.dtype());
  const Expr m = apply_scalar(ScalarOp::maximum, ma, mb);
  const Expr sa = apply_scalar(ScalarOp::exp, ma - m), sb = apply_scalar(ScalarOp::exp, mb - m);
  const Expr both = apply_scalar(ScalarOp::fma, xa, sa, xb * sb);
  b.out(where(apply_scalar(ScalarOp::eq, ma, absent), xb, where(apply_scalar(ScalarOp::eq, mb, absent), xa, both)));
}
void build_maximum(RecipeBuilder& b) { b.out(apply_scalar(ScalarOp::maximum, b.in(0), b.in(1))); }
void build_finish(RecipeBuilder& b) {
  const Expr o = b.in(0), l = b.in(1), zero = b.constant(0.0, o.dtype());
  b.out(where(apply_scalar(ScalarOp::eq, l, zero), zero, o / l));
}
void build_lse(RecipeBuilder& b) { b.out(b.in(0) + apply_scalar(ScalarOp::log, b.in(1))); }
void build_probabilities(RecipeBuilder& b) {
  const Expr s = b.in(0), scale = b.param(0, s.dtype()), zero = b.constant(0.0, s.dtype());
  const Expr seen = visible(b, b.in(4), b.in(5));
  const Expr p = where(seen, apply_scalar(ScalarOp::exp, s * scale - b.in(2)), zero);
  b.out(p);
  b.out(where(seen, p * (b.in(1) - b.in(3)) * scale, zero));
}
void build_delta(RecipeBuilder& b) {
  const DType compute = compute_dtype(b.call[1].dtype());
  b.out(b.reduce(ReduceOp::sum, cast(b.in(0), compute) * cast(b.in(1), compute)));
}
void build_copy(RecipeBuilder& b) { b.out(b.in(0)); }

constexpr OpDef step(const char* name, int inputs, int outputs, const Recipe& recipe) {
  return {.name = name, .num_inputs = inputs, .num_outputs = outputs, .infer = nullptr, .recipe = recipe};
}

}  // namespace

const OpDef kBlock = step("sdpa_block", 3, 3, {.kind = LoopKind::row, .build = build_block, .per_row = 0b110, .params = scale_param,
                                               .leaf = [](const OpCall&) { return key_block(); }});
const OpDef kCombine = step("sdpa_combine", 4, 1, {.build = build_combine});
const OpDef kMaximum = step("sdpa_maximum", 2, 1, {.build = build_maximum});
const OpDef kFinish = step("sdpa_finish", 2, 1, {.build = build_finish});
const OpDef kLse = step("sdpa_lse", 2, 1, {.build = build_lse});
const OpDef kProbabilities = step("sdpa_probabilities", 6, 2, {.kind = LoopKind::row, .build = build_probabilities, .params = scale_param});
const OpDef kDelta = step("sdpa_delta", 2, 1, {.kind = LoopKind::row, .build = build_delta, .per_row = 1});
const OpDef kCopy = step("sdpa_copy", 1, 1, {.build = build_copy});

void run_step(const OpDef& op, const Attrs& attrs, std::initializer_list<Tensor> inputs, std::initializer_list<Tensor> outputs) {
  const OpCall call{op, {inputs.begin(), inputs.size()}, attrs};
  run_recipe(call, {outputs.begin(), outputs.size()});
}

}  // namespace tutti::attention
