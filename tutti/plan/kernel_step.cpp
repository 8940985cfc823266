#include "tutti/plan/kernel_step.h"

#include <algorithm>

#include "tutti/ops/engine/eager.h"
#include "tutti/plan/kernel_writer.h"

namespace tutti::graph {
namespace {

using codegen::LoopKind;

void shape_pointwise(KernelStep& step) {
  int end = step.nest.collapse(0, step.nest.sizes.ndim());
  if (end == 0) step.nest.append_dim(1), end = 1;
  const int inner = end - 1;
  step.spec.kind = LoopKind::pointwise;
  step.outer_end = inner;
  step.run.n_inner = step.nest.sizes[static_cast<size_t>(inner)];
  step.run.inner_dim = inner;
  step.run.split_inner = true;
}

// False when the dims of the row cannot be walked as one. as_columns: rows may be taken side by side, if whole_rows,
// the outputs with an element for each of the row, lie that way.
bool shape_rows(KernelStep& step, const Space& space, bool as_columns, const std::vector<size_t>& whole_rows) {
  LoopNest& nest = step.nest;
  Dims order;
  for (int d = 0; d < space.sizes.ndim(); ++d) {
    if (std::find(space.row.begin(), space.row.end(), d) == space.row.end()) order.push_back(d);
  }
  const int kept = order.ndim();
  for (const int64_t d : space.row) order.push_back(d);
  nest.permute(order);
  nest.logical = contiguous_strides(nest.sizes);
  if (nest.collapse(kept, space.sizes.ndim()) - kept > 1) return false;
  step.outer_end = nest.collapse(0, kept);
  if (nest.sizes.ndim() == step.outer_end) nest.append_dim(1);
  const int reduce = nest.sizes.ndim() - 1;
  const int inner = step.outer_end - 1;
  const auto is_across_rows = [&](size_t operand) {
    const Extents& strides = nest.operands[operand].strides;
    return strides[static_cast<size_t>(reduce)] != 1 && strides[static_cast<size_t>(inner)] == 1;
  };
  const bool column = as_columns && step.outer_end > 0 && !nest.operands.empty() && is_across_rows(0) &&
                      nest.sizes[static_cast<size_t>(inner)] >= 4 &&
                      std::all_of(whole_rows.begin(), whole_rows.end(), is_across_rows);
  if (column) {
    step.spec.kind = LoopKind::column;
    step.run.n_inner = nest.sizes[static_cast<size_t>(inner)];
    step.run.n_reduce = nest.sizes[static_cast<size_t>(reduce)];
    step.run.inner_dim = inner;
    step.run.reduce_dim = reduce;
    step.run.split_inner = true;
    step.outer_end = inner;
    return true;
  }
  step.spec.kind = LoopKind::row;
  step.run.n_inner = nest.sizes[static_cast<size_t>(reduce)];
  step.run.inner_dim = reduce;
  return true;
}

}  // namespace

std::optional<KernelStep> make_kernel_step(const Group& group, const Graph& graph, const std::vector<bool>& escapes) {
  KernelWriter writer(group, graph, escapes);
  KernelStep step;
  step.ops = writer.ops;
  if (writer.outputs.empty()) return step;
  step.nest = writer.nest();
  const bool rows = !group.space.row.empty();
  std::vector<size_t> whole_rows;
  for (size_t k = 0; k < writer.outputs.size(); ++k) {
    if (!writer.outputs[k].per_row) whole_rows.push_back(writer.inputs.size() + k);
  }
  const bool is_mixed = !whole_rows.empty() && whole_rows.size() != writer.outputs.size();
  const bool as_columns = !is_mixed && group.nodes.size() == 1 &&
                          !(graph.nodes[static_cast<size_t>(group.nodes[0])].op->recipe.per_row & kRowsOnly);
  if (!rows) shape_pointwise(step);
  else if (!shape_rows(step, group.space, as_columns, whole_rows)) return std::nullopt;
  writer.finish(step);
  return step;
}

}  // namespace tutti::graph
