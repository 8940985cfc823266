#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "tutti/comm/functional/functional.h"
#include "tutti/core/error.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/joined_steps.h"
#include "tutti/dist/moves.h"
#include "tutti/dist/redistribute.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::dist {
namespace {

namespace functional = comm::functional;

std::string_view reduction_of(PartialOp op) { return op == PartialOp::prod ? "product" : name_of(op); }

// Combined by halving in rank order (numerics contract, N4).
Tensor combine(std::span<const Tensor> terms, PartialOp op) {
  if (terms.size() == 1) return terms[0];
  const size_t left = (terms.size() + 1) / 2;
  const Tensor a = combine(terms.first(left), op), b = combine(terms.subspan(left), op);
  switch (op) {
    case PartialOp::max: return maximum(a, b);
    case PartialOp::min: return minimum(a, b);
    case PartialOp::prod: return mul(a, b);
    case PartialOp::band: return bit_and(a, b);
    case PartialOp::bor: return bit_or(a, b);
    case PartialOp::bxor: return bit_xor(a, b);
    default: return add(a, b);
  }
}

// A step of this rank, ready to run.
struct PreparedStep {
  RedistributeStep step;
  std::shared_ptr<comm::ProcessGroup> group;  // of collectives over whole axes
  std::unique_ptr<Mover> mover;               // of cuts and exchanges, and of reduce_scatters whose parts are unequal
  int dim = 0;                                // of gather and reduce_scatter
  bool keeps = false;                         // fill: this rank keeps the value

  Tensor run(const Tensor& local) const {
    const Placement& before = step.axes.empty() ? Placement() : step.from->placements()[static_cast<size_t>(step.axes[0])];
    switch (step.kind) {
      case StepKind::cut:
      case StepKind::exchange: return mover->run(local);
      case StepKind::gather: return functional::all_gather_single(local, dim, group);
      case StepKind::all_reduce: return functional::all_reduce(local, reduction_of(before.op()), group);
      case StepKind::reduce_scatter: {
        if (!mover) return functional::reduce_scatter_single(local, reduction_of(before.op()), dim, group);
        const std::vector<Tensor> terms = mover->run_by_rank(local);
        const Tensor sum = combine(terms, before.op());
        return before.op() == PartialOp::avg ? truediv(sum, static_cast<double>(terms.size())) : sum;
      }
      case StepKind::fill: {
        const Placement& after = step.to->placements()[static_cast<size_t>(step.axes[0])];
        if (keeps || (after.op() != PartialOp::sum && after.op() != PartialOp::bxor)) return local;
        return full(local.sizes(), is_floating(local.dtype()) ? -0.0 : 0.0, local.dtype());
      }
    }
    return local;
  }
};

PreparedStep prepare(const RedistributeStep& step, const DeviceMesh& mesh) {
  PreparedStep prepared{.step = step, .group = nullptr, .mover = nullptr};
  switch (step.kind) {
    case StepKind::cut:
    case StepKind::exchange: prepared.mover = std::make_unique<Mover>(*step.from, *step.to, mesh); break;
    case StepKind::gather:
      prepared.group = mesh.group_over(step.axes);
      prepared.dim = step.from->placements()[static_cast<size_t>(step.axes[0])].dim();
      break;
    case StepKind::all_reduce: prepared.group = mesh.group_over(step.axes); break;
    case StepKind::reduce_scatter: {
      const int axis = step.axes[0];
      prepared.dim = step.to->placements()[static_cast<size_t>(axis)].dim();
      prepared.group = mesh.group(axis);
      const int64_t whole = step.from->local_sizes(mesh.coordinate())[static_cast<size_t>(prepared.dim)];
      if (whole % mesh.size(axis) == 0) break;
      prepared.mover = std::make_unique<Mover>(*step.from, *step.to, mesh, axis);
      break;
    }
    case StepKind::fill: prepared.keeps = mesh.coordinate()[static_cast<size_t>(step.axes[0])] == 0; break;
  }
  return prepared;
}

struct PreparedPlan {
  RedistributePlan plan;
  std::vector<PreparedStep> steps;
};

// The plans of this rank by the pair of specs, of which the newest stay.
struct PreparedPlans {
  static constexpr size_t kMost = 4096;
  std::mutex mutex;
  struct Entry {
    std::weak_ptr<const DeviceMesh> mesh;
    std::shared_ptr<const PreparedPlan> plan;
    uint64_t made;
  };
  std::map<std::pair<uint32_t, uint32_t>, Entry> by_specs;
  uint64_t next = 0;

  std::shared_ptr<const PreparedPlan> get(const DTensorSpec& from, const DTensorSpec& to, const Mesh& mesh) {
    const std::pair key{from.id(), to.id()};
    {
      const std::lock_guard lock(mutex);
      const auto it = by_specs.find(key);
      if (it != by_specs.end() && it->second.mesh.lock() == mesh) return it->second.plan;
    }
    auto made = std::make_shared<PreparedPlan>();
    made->plan = plan_redistribution(from, to, cost_model_of(*mesh));
    for (const RedistributeStep& step : made->plan.steps) made->steps.push_back(prepare(step, *mesh));
    const std::lock_guard lock(mutex);
    if (by_specs.size() >= kMost) {
      by_specs.erase(std::min_element(by_specs.begin(), by_specs.end(), [](const auto& a, const auto& b) { return a.second.made < b.second.made; }));
    }
    by_specs[key] = {mesh, made, next++};
    return made;
  }
};

}  // namespace

CostModel cost_model_of(const DeviceMesh& mesh) {
  if (!mesh.has_coordinate()) return {};
  CostModel slowest{0, 1e18};
  for (const std::string& transport : mesh.transports()) {
    const CostModel model = cost_model(transport);
    slowest.latency = std::max(slowest.latency, model.latency);
    slowest.bytes_per_us = std::min(slowest.bytes_per_us, model.bytes_per_us);
  }
  return slowest;
}

Tensor redistributed_part(const Tensor& local, const DTensorSpec& from, const DTensorSpec& wanted, const Mesh& mesh) {
  if (&from == &wanted || !mesh->has_coordinate()) return local;
  const std::shared_ptr<const PreparedPlan> prepared = RankContext::current().slot<PreparedPlans>().get(from, wanted, mesh);
  const StageScope below(0, static_cast<StageMask>(mask_of(StagePlace::autograd) | mask_of(StagePlace::sharding)));
  Tensor part = local;
  for (const PreparedStep& step : prepared->steps) {
    if (part.dtype() != step.step.from->local_dtype()) part = cast(part, step.step.from->local_dtype());
    part = step.run(part);
    if (part.dtype() != step.step.to->local_dtype()) part = cast(part, step.step.to->local_dtype());
    CommCounter::note(step.step);
  }
  return part;
}

// Steps of one kind over one group, in one call.
static std::vector<Tensor> run_together(std::span<const PreparedStep* const> steps, std::span<const Tensor> locals) {
  const PreparedStep& first = *steps[0];
  std::vector<int64_t> dims;
  for (const PreparedStep* s : steps) dims.push_back(s->dim);
  if (first.step.kind == StepKind::gather) return functional::all_gather_single_coalesced(locals, first.group, dims);
  const std::string_view reduction = reduction_of(first.step.from->placements()[static_cast<size_t>(first.step.axes[0])].op());
  return first.step.kind == StepKind::all_reduce ? functional::all_reduce_coalesced(locals, reduction, first.group)
                                                 : functional::reduce_scatter_single_coalesced(locals, reduction, first.group, dims);
}

void redistribute_parts(std::span<Tensor> parts, std::span<const PartMove> moves, const Mesh& mesh) {
  std::vector<size_t> moved;
  for (size_t i = 0; i < moves.size(); ++i) {
    if (moves[i].from != moves[i].wanted) moved.push_back(i);
  }
  if (!mesh->has_coordinate() || moved.empty()) return;
  if (moved.size() == 1) {
    Tensor& part = parts[moved[0]];
    part = redistributed_part(part, *moves[moved[0]].from, *moves[moved[0]].wanted, mesh);
    return;
  }
  std::vector<std::shared_ptr<const PreparedPlan>> prepared;
  std::vector<const RedistributePlan*> plans;
  for (const size_t i : moved) {
    prepared.push_back(RankContext::current().slot<PreparedPlans>().get(*moves[i].from, *moves[i].wanted, mesh));
    plans.push_back(&prepared.back()->plan);
  }
  const StageScope below(0, static_cast<StageMask>(mask_of(StagePlace::autograd) | mask_of(StagePlace::sharding)));
  for (const std::vector<StepAt>& call : joined_steps(plans)) {
    std::vector<const PreparedStep*> steps;
    std::vector<Tensor> locals;
    RedistributeStep whole = prepared[call[0].plan]->steps[call[0].step].step;
    whole.bytes = 0;
    for (const StepAt& at : call) {
      steps.push_back(&prepared[at.plan]->steps[at.step]);
      const Tensor& part = parts[moved[at.plan]];
      const DType dtype = steps.back()->step.from->local_dtype();
      locals.push_back(part.dtype() == dtype ? part : cast(part, dtype));
      whole.bytes += steps.back()->step.bytes;
    }
    const std::vector<Tensor> results = steps.size() == 1 ? std::vector<Tensor>{steps[0]->run(locals[0])} : run_together(steps, locals);
    for (size_t k = 0; k < call.size(); ++k) {
      const DType dtype = steps[k]->step.to->local_dtype();
      parts[moved[call[k].plan]] = results[k].dtype() == dtype ? results[k] : cast(results[k], dtype);
    }
    CommCounter::note(whole);
  }
}

Tensor redistributed_part(const Tensor& t, const DTensorSpec& wanted) {
  const Part& part = part_of(t, "redistribute");
  return redistributed_part(part.local, *part.spec, wanted, part.mesh);
}

}  // namespace tutti::dist
