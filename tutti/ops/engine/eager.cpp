#include "tutti/ops/engine/eager.h"

#include <algorithm>

#include "tutti/ops/engine/loop_nest.h"
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

LoopNest make_nest(const Extents& sizes) {
  LoopNest nest;
  nest.sizes = sizes;
  nest.logical = contiguous_strides(sizes);
  nest.operands.reserve(kMaxOperands);
  return nest;
}

// Small dense operands of one shape, the commonest call, need no loop nest. False when this is not such a call.
bool run_small_dense(const OpCall& call, std::span<const Tensor> outputs, const codegen::ParamValue* params) {
  const int64_t n = outputs[0].numel();
  if (n == 0 || n >= kParallelGrain || call.inputs.size() + outputs.size() > kFewOperands) return false;
  KernelKey key = key_of(call, LoopKind::pointwise);
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
  if (run_small_dense(call, outputs, params)) return;
  LoopNest nest = make_nest(outputs[0].extents());
  for (const Tensor& t : call.inputs) nest.add(t);
  for (const Tensor& t : outputs) nest.add(t);
  if (nest.count(0, nest.sizes.ndim()) == 0) return;
  int end = nest.collapse(0, nest.sizes.ndim());
  if (end == 0) nest.append_dim(1), end = 1;
  const int inner = end - 1;
  const codegen::Kernel& kernel = find_kernel(call, outputs, key_of(call, outputs, LoopKind::pointwise, nest, inner));
  const uint32_t error = run_nest(
      nest, inner,
      {.entry = kernel.entry, .params = params, .n_inner = nest.sizes[inner], .inner_dim = inner, .split_inner = true});
  if (error) throw_reported(error, call);
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

// Rows: kept dims in front, the row's dims behind and merged to one. An input that cannot be merged is packed first.
void run_rows(const OpCall& call, std::span<const Tensor> outputs, const codegen::ParamValue* params) {
  const Extents sizes = iteration_sizes(call, outputs);
  const int ndim = sizes.ndim();
  const Recipe& recipe = call.op.recipe;
  Dims row = recipe.row_dims ? recipe.row_dims(call) : Dims{};
  if (!recipe.row_dims && ndim > 0) row.push_back(ndim - 1);
  Dims order, kept;
  for (int d = 0; d < ndim; ++d) {
    if (std::find(row.begin(), row.end(), d) == row.end()) kept.push_back(d);
  }
  order = kept;
  for (int64_t d : row) order.push_back(d);

  const auto per_row = [&](size_t k) { return (recipe.per_row >> k & 1) != 0; };
  const auto build = [&](std::span<const Tensor> inputs) {
    LoopNest nest = make_nest(sizes);
    for (const Tensor& t : inputs) nest.add(t);
    for (size_t k = 0; k < outputs.size(); ++k) {
      if (!per_row(k)) {
        nest.add(outputs[k]);
        continue;
      }
      nest.operands.push_back({static_cast<char*>(outputs[k].raw_data()), itemsize(outputs[k].dtype()),
                               strides_of_rows(outputs[k], sizes, kept)});
    }
    nest.permute(order);
    // Rows are numbered in this order: row dims that others stand between merge all the same.
    nest.logical = contiguous_strides(nest.sizes);
    return nest;
  };

  LoopNest nest = build(call.inputs);
  // Without rows there is nothing to do, and no order in which their dims can be merged: empty tensors look dense
  // whatever their strides are.
  if (std::all_of(outputs.begin(), outputs.end(), [](const Tensor& t) { return t.numel() == 0; })) return;
  int total = nest.collapse(kept.ndim(), ndim);
  std::vector<Tensor> packed;
  if (total - kept.ndim() > 1) {
    for (const Tensor& t : call.inputs) {
      // Dense in the order (kept, row), which merges whatever the row dims are.
      const Tensor wide = t.view_as(sizes, broadcast_strides(t, sizes), t.offset());
      Extents permuted_sizes, permuted_strides;
      for (int64_t d : order) permuted_sizes.push_back(sizes[d]), permuted_strides.push_back(wide.strides()[d]);
      const Tensor dense = to_contiguous(wide.view_as(permuted_sizes, permuted_strides, t.offset()));
      Extents strides(sizes.size(), 0);
      for (size_t i = 0; i < order.size(); ++i) strides[static_cast<size_t>(order[i])] = dense.strides()[i];
      packed.push_back(dense.view_as(sizes, strides, 0));
    }
    nest = build(packed);
    total = nest.collapse(kept.ndim(), ndim);
    TUTTI_ASSERT(total - kept.ndim() <= 1, "{}: rows of an output cannot be merged", call.op.name);
  }
  int outer_end = nest.collapse(0, kept.ndim());
  if (nest.sizes.ndim() == outer_end) nest.append_dim(1);
  const int reduce = nest.sizes.ndim() - 1;
  const int64_t leaf = recipe.leaf ? recipe.leaf(call) : 0;
  KernelRun run{.entry = nullptr, .params = params, .leaf = leaf > 0 ? leaf : 512};

  const int inner = outer_end - 1;
  const auto is_across_rows = [&](const NestOperand& o) { return o.strides[reduce] != 1 && o.strides[inner] == 1; };
  const bool all_per_row = recipe.per_row + 1u == 1u << outputs.size(), none_per_row = recipe.per_row == 0;
  const size_t n_whole = none_per_row ? outputs.size() : 0;
  const bool column =
      recipe.kind == LoopKind::row && (all_per_row || none_per_row) && outer_end > 0 && !nest.operands.empty() &&
      is_across_rows(nest.operands[0]) && nest.sizes[inner] >= 4 &&
      std::all_of(nest.operands.end() - static_cast<ptrdiff_t>(n_whole), nest.operands.end(), is_across_rows);
  if (column) {
    run.entry = find_kernel(call, outputs, key_of(call, outputs, LoopKind::column, nest, inner)).entry;
    run.n_inner = nest.sizes[inner];
    run.n_reduce = nest.sizes[reduce];
    run.inner_dim = inner;
    run.reduce_dim = reduce;
    run.split_inner = true;
    if (const uint32_t error = run_nest(nest, inner, run)) throw_reported(error, call);
    return;
  }
  run.entry = find_kernel(call, outputs, key_of(call, outputs, recipe.kind, nest, reduce)).entry;
  run.n_inner = nest.sizes[reduce];
  run.inner_dim = reduce;
  if (const uint32_t error = run_nest(nest, outer_end, run)) throw_reported(error, call);
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
