#include "tutti/ops/attention/steps.h"

#include "tutti/ops/engine/eager.h"

namespace tutti::attention {
namespace {

using codegen::LoopKind;
using codegen::ReduceOp;

void build_delta(RecipeBuilder& b) {
  const DType compute = compute_dtype(b.call[1].dtype());
  b.out(b.reduce(ReduceOp::sum, cast(b.in(0), compute) * cast(b.in(1), compute)));
}
void build_copy(RecipeBuilder& b) { b.out(b.in(0)); }
void build_add(RecipeBuilder& b) { b.out(b.in(0) + b.in(1)); }

constexpr OpDef step(const char* name, int inputs, int outputs, const Recipe& recipe) {
  return {.name = name, .num_inputs = inputs, .num_outputs = outputs, .infer = nullptr, .recipe = recipe};
}

}  // namespace

const OpDef kDelta = step("sdpa_delta", 2, 1, {.kind = LoopKind::row, .build = build_delta, .per_row = 1});
const OpDef kCopy = step("sdpa_copy", 1, 1, {.build = build_copy});
const OpDef kAdd = step("sdpa_add", 2, 1, {.build = build_add});

void run_step(const OpDef& op, const Attrs& attrs, std::initializer_list<Tensor> inputs,
              std::initializer_list<Tensor> outputs) {
  const OpCall call{op, {inputs.begin(), inputs.size()}, attrs};
  run_recipe(call, {outputs.begin(), outputs.size()});
}

}  // namespace tutti::attention
