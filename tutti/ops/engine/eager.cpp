#include "tutti/ops/engine/eager.h"

#include <algorithm>

#include "tutti/ops/engine/launch.h"
#include "tutti/ops/engine/picked.h"
#include "tutti/ops/engine/recipe_kernel.h"

namespace tutti {
namespace {

using codegen::LoopKind;
using codegen::StrideClass;

constexpr size_t kMaxParams = 16;
constexpr size_t kFewOperands = 4;  // of a call that is over before room for more is cleared

Extents iteration_sizes(const OpCall& call, std::span<const Tensor> outputs) {
  if (call.inputs.empty()) return outputs[0].extents();
  Shape sizes = call.inputs[0].sizes();
  for (size_t i = 1; i < call.inputs.size(); ++i) sizes = broadcast_shapes(sizes, call.inputs[i].sizes(), call.op.name);
  return concrete(sizes);
}

LoopPlan make_plan(const OpCall& call, const Extents& sizes) {
  LoopPlan plan;
  plan.nest.sizes = sizes;
  plan.nest.logical = contiguous_strides(sizes);
  plan.nest.operands.reserve(kMaxOperands);
  plan.kind = call.op.recipe.kind;
  plan.inputs = call.inputs.size();
  plan.per_row = call.op.recipe.per_row;
  return plan;
}

void launch_recipe(const LoopPlan& plan, const OpCall& call, std::span<const Tensor> outputs,
                   const codegen::ParamValue* params) {
  const codegen::Kernel& kernel = find_kernel(call, outputs, key_of(call, outputs, plan));
  if (const uint32_t error = launch(plan, kernel, params, nullptr, device_of(call, outputs)))
    throw_reported(error, call);
}

// Small dense operands of one shape on the host, the commonest call, need no loop nest. False when this is not such a
// call.
bool run_small_dense(const OpCall& call, std::span<const Tensor> outputs, const codegen::ParamValue* params) {
  const int64_t n = outputs[0].numel();
  if (n == 0 || n >= kParallelGrain || call.inputs.size() + outputs.size() > kFewOperands) return false;
  KernelKey key = key_of(call, outputs, LoopKind::pointwise);
  codegen::OperandCall operands[kFewOperands];
  for (const std::span<const Tensor> list : {call.inputs, outputs}) {
    for (const Tensor& t : list) {
      if (!t.is_contiguous() || t.extents() != outputs[0].extents()) return false;
      operands[key.count] = {.data = t.raw_data(), .inner = 1};
      key.add(recipe_dtype(call.op.recipe, t.dtype()), StrideClass::contiguous);
    }
  }
  uint32_t error = 0;
  const codegen::KernelCall kernel_call{.operands = operands, .params = params, .n_inner = n, .error = &error};
  find_kernel(call, outputs, key).entry(&kernel_call);
  if (error) throw_reported(error, call);
  return true;
}

void run_pointwise(const OpCall& call, std::span<const Tensor> outputs, const codegen::ParamValue* params) {
  if (device_of(call, outputs) == kCpu && run_small_dense(call, outputs, params)) return;
  LoopPlan plan = make_plan(call, outputs[0].extents());
  for (const Tensor& t : call.inputs) plan.nest.add(t);
  for (const Tensor& t : outputs) plan.nest.add(t);
  if (plan.nest.count(0, plan.nest.sizes.ndim()) == 0) return;
  plan_pointwise(plan);
  launch_recipe(plan, call, outputs, params);
}

// The strides of an output with one element per row, which has the dims of its rows in their order, and perhaps dims of
// one element between them; 0 along a row.
Extents strides_of_rows(const Tensor& output, const Extents& sizes, const Dims& kept) {
  Extents strides(sizes.size(), 0);
  int d = output.ndim() - 1;
  for (int i = kept.ndim() - 1; i >= 0; --i) {
    const int64_t size = sizes[kept[i]];
    if (size == 1) continue;
    while (d >= 0 && output.extent(d) == 1) --d;
    TUTTI_ASSERT(d >= 0 && output.extent(d) == size, "rows of {} for an output {}", fmt::join(sizes, ", "),
                 describe(output));
    strides[static_cast<size_t>(kept[i])] = output.strides()[d--];
  }
  return strides;
}

// The tensors, broadcast to `sizes`, in new memory that is dense in the order of the kept dims, then those of the row.
std::vector<Tensor> pack_rows(std::span<const Tensor> tensors, const Extents& sizes, const Dims& kept,
                              const Dims& row) {
  Dims order = kept;
  for (const int64_t d : row) order.push_back(d);
  std::vector<Tensor> packed;
  for (const Tensor& t : tensors) {
    const Tensor wide = t.view_as(sizes, broadcast_strides(t, sizes), t.offset());
    Extents permuted_sizes, permuted_strides;
    for (const int64_t d : order) permuted_sizes.push_back(sizes[d]), permuted_strides.push_back(wide.strides()[d]);
    const Tensor dense = to_contiguous(wide.view_as(permuted_sizes, permuted_strides, t.offset()));
    Extents strides(sizes.size(), 0);
    for (size_t i = 0; i < order.size(); ++i) strides[static_cast<size_t>(order[i])] = dense.strides()[i];
    packed.push_back(dense.view_as(sizes, strides, 0));
  }
  return packed;
}

void run_rows(const OpCall& call, std::span<const Tensor> outputs, const codegen::ParamValue* params) {
  // Without rows there is nothing to do, and no order in which their dims can be merged: empty tensors look dense
  // whatever their strides are.
  if (std::all_of(outputs.begin(), outputs.end(), [](const Tensor& t) { return t.numel() == 0; })) return;
  const Extents sizes = iteration_sizes(call, outputs);
  const Recipe& recipe = call.op.recipe;
  Dims row = recipe.row_dims ? recipe.row_dims(call) : Dims{};
  if (!recipe.row_dims && sizes.ndim() > 0) row.push_back(sizes.ndim() - 1);
  Dims kept;
  for (int64_t d = 0; d < sizes.ndim(); ++d) {
    if (std::find(row.begin(), row.end(), d) == row.end()) kept.push_back(d);
  }
  const auto plan_of = [&](std::span<const Tensor> inputs, LoopPlan& plan) {
    plan = make_plan(call, sizes);
    for (const Tensor& t : inputs) plan.nest.add(t);
    for (size_t k = 0; k < outputs.size(); ++k) {
      const Tensor& out = outputs[k];
      if (!plan.has_per_row(k)) {
        plan.nest.add(out);
        continue;
      }
      plan.nest.operands.push_back(
          {static_cast<char*>(out.raw_data()), itemsize(out.dtype()), strides_of_rows(out, sizes, kept)});
    }
    return plan_rows(plan, row, may_be_columns(recipe.per_row, outputs.size()));
  };
  LoopPlan plan;
  std::vector<Tensor> packed;
  if (!plan_of(call.inputs, plan)) {
    packed = pack_rows(call.inputs, sizes, kept, row);
    TUTTI_ASSERT(plan_of(packed, plan), "{}: rows of an output cannot be merged", call.op.name);
  }
  const int64_t leaf = recipe.leaf ? recipe.leaf(call) : 0;
  if (leaf > 0) plan.run.leaf = leaf;
  launch_recipe(plan, call, outputs, params);
}

}  // namespace

void throw_reported(uint32_t error, const OpCall& call) {
  if (error & codegen::kDividedByZero) throw IntegerDivideByZero(call.op.name);
  if (call.op.recipe.explain) call.op.recipe.explain(call);
  throw UsageError(fmt::format(
      "{}: an index was out of range and is not any more: something writes the indices meanwhile", call.op.name));
}

void run_recipe(const OpCall& call, std::span<const Tensor> outputs) {
  TUTTI_ASSERT(call.op.recipe.build != nullptr, "{} has neither recipe, kernel nor view", call.op.name);
  codegen::ParamValue params[kMaxParams];
  if (call.op.recipe.params) call.op.recipe.params(call, params);
  if (call.op.recipe.pick) run_picked(call, outputs, params);
  else if (call.op.recipe.kind == LoopKind::pointwise) run_pointwise(call, outputs, params);
  else run_rows(call, outputs, params);
}

}  // namespace tutti
