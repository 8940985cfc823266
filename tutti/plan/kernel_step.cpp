#include "tutti/plan/kernel_step.h"

#include "tutti/ops/engine/eager.h"
#include "tutti/plan/kernel_writer.h"

namespace tutti::graph {

std::optional<KernelStep> make_kernel_step(const Group& group, const Graph& graph, const std::vector<bool>& escapes) {
  KernelWriter writer(group, graph, escapes);
  KernelStep step;
  step.ops = writer.ops;
  if (writer.outputs.empty()) return step;
  step.plan = writer.plan();
  if (group.space.row.empty()) {
    plan_pointwise(step.plan);
  } else {
    const bool is_alone = group.nodes.size() == 1;
    const uint32_t rows_only = graph.nodes[static_cast<size_t>(group.nodes[0])].op->recipe.per_row & kRowsOnly;
    const bool columns = is_alone && may_be_columns(step.plan.per_row | rows_only, writer.outputs.size());
    if (!plan_rows(step.plan, group.space.row, columns)) return std::nullopt;
  }
  writer.finish(step);
  return step;
}

}  // namespace tutti::graph
