#include "tutti/dist/joined_steps.h"

#include <algorithm>

#include "tutti/dist/moves.h"

namespace tutti::dist {
namespace {

bool communicates(const RedistributeStep& step) { return step.kind != StepKind::cut && step.kind != StepKind::fill; }

const Placement& before(const RedistributeStep& step) {
  return step.from->placements()[static_cast<size_t>(step.axes[0])];
}

// Whether the step is one collective with equal parts on every rank of the mesh: what joins must not differ between
// ranks.
bool is_even(const RedistributeStep& step) {
  if (step.kind == StepKind::all_reduce || step.kind == StepKind::gather) return true;
  if (step.kind != StepKind::reduce_scatter) return false;
  const int axis = step.axes[0], dim = step.to->placements()[static_cast<size_t>(axis)].dim();
  for (const std::vector<int64_t>& at : coordinates_of(step.from->mesh_shape())) {
    if (step.from->local_sizes(at)[static_cast<size_t>(dim)] % step.from->mesh_shape()[static_cast<size_t>(axis)] != 0)
      return false;
  }
  return true;
}

bool join(const RedistributeStep& a, const RedistributeStep& b) {
  if (a.kind != b.kind || a.axes != b.axes) return false;
  return (a.kind == StepKind::gather || before(a).op() == before(b).op()) && is_even(a) && is_even(b);
}

}  // namespace

std::vector<std::vector<StepAt>> joined_steps(std::span<const RedistributePlan* const> plans) {
  std::vector<std::vector<StepAt>> order;
  std::vector<size_t> next(plans.size(), 0);
  const auto step_of = [&](size_t p) -> const RedistributeStep* {
    return next[p] < plans[p]->steps.size() ? &plans[p]->steps[next[p]] : nullptr;
  };
  while (true) {
    for (size_t p = 0; p < plans.size(); ++p) {
      for (const RedistributeStep* s = step_of(p); s != nullptr && !communicates(*s); s = step_of(p))
        order.push_back({{p, next[p]++}});
    }
    size_t first = 0;
    while (first < plans.size() && step_of(first) == nullptr) ++first;
    if (first == plans.size()) return order;
    const RedistributeStep& leads = *step_of(first);
    std::vector<StepAt> call;
    for (size_t p = first; p < plans.size(); ++p) {
      const RedistributeStep* s = step_of(p);
      if (p == first || (s != nullptr && join(leads, *s))) call.push_back({p, next[p]++});
    }
    order.push_back(std::move(call));
  }
}

Saved saved_by_joining(std::span<const RedistributePlan* const> plans, const CostModel& model) {
  Saved saved;
  for (const std::vector<StepAt>& call : joined_steps(plans)) {
    const int further = static_cast<int>(call.size()) - 1;
    saved.collectives += further;
    if (further == 0) continue;
    const RedistributeStep& step = plans[call[0].plan]->steps[call[0].step];
    int64_t ranks = 1;
    for (const int axis : step.axes) ranks *= step.from->mesh_shape()[static_cast<size_t>(axis)];
    saved.cost += further * model.latency(step.kind, ranks);
  }
  return saved;
}

}  // namespace tutti::dist
