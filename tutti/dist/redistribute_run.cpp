#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "tutti/comm/functional/async_result.h"
#include "tutti/comm/functional/functional.h"
#include "tutti/core/error.h"
#include "tutti/dist/comm_counter.h"
#include "tutti/dist/joined_steps.h"
#include "tutti/dist/moves.h"
#include "tutti/dist/redistribute.h"
#include "tutti/graph/held_wrappers.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/bitwise.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/comparison.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/where.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::dist {
namespace {

namespace functional = comm::functional;

std::string_view reduction_of(PartialOp op) { return op == PartialOp::prod ? "product" : name_of(op); }

// Combined by halving in rank order (numerics contract, N4).
Tensor halved(std::span<const Tensor> terms, PartialOp op) {
  if (terms.size() == 1) return terms[0];
  const size_t left = (terms.size() + 1) / 2;
  const Tensor a = halved(terms.first(left), op), b = halved(terms.subspan(left), op);
  switch (op) {
    case PartialOp::max:
      return maximum(a, b);
    case PartialOp::min:
      return minimum(a, b);
    case PartialOp::prod:
      return mul(a, b);
    case PartialOp::band:
      return bit_and(a, b);
    case PartialOp::bor:
      return bit_or(a, b);
    case PartialOp::bxor:
      return bit_xor(a, b);
    default:
      return add(a, b);
  }
}
// The average of equal terms is the term, as in codegen/combine.h.
Tensor combine(std::span<const Tensor> terms, PartialOp op) {
  const Tensor all = halved(terms, op);
  if (op != PartialOp::avg || terms.size() == 1) return all;
  Tensor keeps = ne(terms[0], 0.0);
  for (const Tensor& term : terms.subspan(1)) keeps = bit_and(keeps, eq(terms[0], term));
  return where(keeps, terms[0], truediv(all, static_cast<double>(terms.size())));
}

// The tensors of `ranks` ranks, which stand one after another in dim 0, one after another in `dim`.
Tensor along(const Tensor& gathered, int dim, int64_t ranks) {
  std::vector<Tensor> parts;
  const int64_t rows = gathered.extent(0) / ranks;
  for (int64_t r = 0; r < ranks; ++r) parts.push_back(narrow(gathered, 0, r * rows, rows));
  return cat(parts, dim);
}

// A step of this rank, ready to run.
struct PreparedStep {
  RedistributeStep step;
  std::shared_ptr<comm::ProcessGroup> group;  // of collectives over whole axes
  std::unique_ptr<Mover> mover;               // of cuts and exchanges, and of reduce_scatters whose parts are unequal
  int dim = 0;                                // of gather and reduce_scatter
  bool keeps = false;                         // fill: this rank keeps the value

  // In a trace whose sizes are symbols: what a mover cuts and sends has sizes in integers.
  void check_symbols(const Tensor& local) const {
    if (!mover || local.impl()->traced < 0) return;
    for (int d = 0; d < local.ndim(); ++d) {
      const bool is_cut = !step.from->axes_of(d).empty() || !step.to->axes_of(d).empty();
      if (!local.sizes()[static_cast<size_t>(d)].is_symbolic() || (!is_cut && !mover->is_for_one_size())) continue;
      graph::refuse_symbols(fmt::format("{} of {} to {} counts the elements of dim {}", name_of(step.kind),
                                        step.from->to_string(), step.to->to_string(), d));
    }
  }

  Tensor run(const Tensor& local) const {
    check_symbols(local);
    const Placement& before =
        step.axes.empty() ? Placement() : step.from->placements()[static_cast<size_t>(step.axes[0])];
    switch (step.kind) {
      case StepKind::cut:
      case StepKind::exchange:
        return mover->run(local);
      case StepKind::gather:
        return functional::all_gather_single(local, dim, group);
      case StepKind::all_reduce:
        return functional::all_reduce(local, reduction_of(before.op()), group);
      case StepKind::reduce_scatter: {
        if (!mover) return functional::reduce_scatter_single(local, reduction_of(before.op()), dim, group);
        return combine(mover->run_by_rank(local), before.op());
      }
      case StepKind::fill: {
        const Placement& after = step.to->placements()[static_cast<size_t>(step.axes[0])];
        if (keeps || (after.op() != PartialOp::sum && after.op() != PartialOp::bxor)) return local;
        return full(local.sizes(), is_floating(local.dtype()) ? -0.0 : 0.0, local.dtype());
      }
    }
    return local;
  }

  // The same without waiting for its collective.
  Arriving start(const Tensor& local) const {
    check_symbols(local);
    if (step.kind == StepKind::exchange) return mover->start(local);
    if (mover && step.kind == StepKind::reduce_scatter) {
      const PartialOp op = step.from->placements()[static_cast<size_t>(step.axes[0])].op();
      return mover->start_by_rank(local, [op](std::span<const Tensor> terms) { return combine(terms, op); });
    }
    if (step.kind == StepKind::gather && dim != 0) {
      const Tensor gathered = functional::all_gather_single(local, 0, group);
      return {.arrived = gathered,
              .value = [gathered, d = dim, ranks = group->size()] { return along(gathered, d, ranks); }};
    }
    return {.arrived = run(local)};
  }

  bool is_collective() const { return step.kind != StepKind::cut && step.kind != StepKind::fill; }
};

PreparedStep prepare(const RedistributeStep& step, const DeviceMesh& mesh) {
  PreparedStep prepared{.step = step, .group = nullptr, .mover = nullptr};
  switch (step.kind) {
    case StepKind::cut:
    case StepKind::exchange:
      prepared.mover = std::make_unique<Mover>(*step.from, *step.to, mesh);
      break;
    case StepKind::gather:
      prepared.group = mesh.group_over(step.axes);
      prepared.dim = step.from->placements()[static_cast<size_t>(step.axes[0])].dim();
      break;
    case StepKind::all_reduce:
      prepared.group = mesh.group_over(step.axes);
      break;
    case StepKind::reduce_scatter: {
      const int axis = step.axes[0];
      prepared.dim = step.to->placements()[static_cast<size_t>(axis)].dim();
      prepared.group = mesh.group(axis);
      const int64_t whole = step.from->local_sizes(mesh.coordinate())[static_cast<size_t>(prepared.dim)];
      if (whole % mesh.size(axis) == 0) break;
      prepared.mover = std::make_unique<Mover>(*step.from, *step.to, mesh, axis);
      break;
    }
    case StepKind::fill:
      prepared.keeps = mesh.coordinate()[static_cast<size_t>(step.axes[0])] == 0;
      break;
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
      by_specs.erase(std::min_element(by_specs.begin(), by_specs.end(),
                                      [](const auto& a, const auto& b) { return a.second.made < b.second.made; }));
    }
    by_specs[key] = {mesh, made, next++};
    return made;
  }
};

constexpr StageMask kBelow = static_cast<StageMask>(mask_of(StagePlace::autograd) | mask_of(StagePlace::sharding));

Tensor in_dtype(const Tensor& t, DType dtype) { return t.dtype() == dtype ? t : cast(t, dtype); }

// Waits for a part that a step has neither read nor passed on: nobody will read it, and so nobody else will wait for
// it.
void wait_if_dropped(const Tensor& before, const Tensor& after) {
  if (before.storage().get() != after.storage().get() && functional::is_pending(before))
    functional::wait_tensor(before);
}

Tensor run_steps(std::span<const PreparedStep> steps, Tensor part) {
  for (const PreparedStep& step : steps) {
    const Tensor before = part;
    part = in_dtype(step.run(in_dtype(before, step.step.from->local_dtype())), step.step.to->local_dtype());
    wait_if_dropped(before, part);
    CommCounter::note(step.step);
  }
  return part;
}

// The part of these sizes and this dtype, computed when it is read; at once where nothing is under way, as in a trace,
// whose graph says who waits for whom.
Tensor when_read(const Arriving& arriving, const Extents& sizes, DType dtype) {
  const auto value = [&arriving] { return arriving.value ? arriving.value() : arriving.arrived; };
  if (!arriving.arrived.defined() || !functional::is_pending(arriving.arrived)) return value();
  if (!arriving.value) return arriving.arrived;
  const auto write =
      arriving.write ? arriving.write : [v = arriving.value](const Tensor& target) { facets::raw_copy(target, v()); };
  return functional::filled_when_read(sizes, dtype, {arriving.arrived}, write);
}

}  // namespace

Tensor redistributed_later(const Tensor& local, const DTensorSpec& from, const DTensorSpec& wanted, const Mesh& mesh) {
  if (&from == &wanted || !mesh->has_coordinate()) return local;
  const std::shared_ptr<const PreparedPlan> prepared =
      RankContext::current().slot<PreparedPlans>().get(from, wanted, mesh);
  const std::span<const PreparedStep> steps = prepared->steps;
  size_t last = steps.size();
  while (last > 0 && !steps[last - 1].is_collective()) --last;
  const StageScope below(0, kBelow);
  if (last == 0) return run_steps(steps, local);
  const PreparedStep& step = steps[last - 1];
  const Tensor part = in_dtype(run_steps(steps.first(last - 1), local), step.step.from->local_dtype());
  // The last step may take nothing of what the earlier ones have made.
  if (last > 1 && functional::is_pending(part)) functional::wait_tensor(part);
  Arriving arriving = step.start(part);
  CommCounter::note(step.step);
  const DType after = step.step.to->local_dtype();
  if (last < steps.size() || step.step.from->local_dtype() != after) {
    const auto value = arriving.value ? arriving.value : [t = arriving.arrived] { return t; };
    arriving.value = [value, after, prepared, last] {
      return run_steps(std::span(prepared->steps).subspan(last), in_dtype(value(), after));
    };
    arriving.write = nullptr;
  }
  return when_read(arriving, wanted.local_sizes(mesh->coordinate()), wanted.local_dtype());
}

Tensor moved_later(const Mover& mover, const Tensor& local, const Extents& sizes) {
  const StageScope below(0, kBelow);
  return when_read(mover.start(local), sizes, local.dtype());
}

Tensor redistributed_part(const Tensor& local, const DTensorSpec& from, const DTensorSpec& wanted, const Mesh& mesh) {
  if (&from == &wanted || !mesh->has_coordinate()) return local;
  const std::shared_ptr<const PreparedPlan> prepared =
      RankContext::current().slot<PreparedPlans>().get(from, wanted, mesh);
  const StageScope below(0, kBelow);
  return run_steps(prepared->steps, local);
}

// Steps of one kind over one group, in one call.
static std::vector<Tensor> run_together(std::span<const PreparedStep* const> steps, std::span<const Tensor> locals) {
  const PreparedStep& first = *steps[0];
  std::vector<int64_t> dims;
  for (const PreparedStep* s : steps) dims.push_back(s->dim);
  if (first.step.kind == StepKind::gather) return functional::all_gather_single_coalesced(locals, first.group, dims);
  const std::string_view reduction =
      reduction_of(first.step.from->placements()[static_cast<size_t>(first.step.axes[0])].op());
  return first.step.kind == StepKind::all_reduce
             ? functional::all_reduce_coalesced(locals, reduction, first.group)
             : functional::reduce_scatter_single_coalesced(locals, reduction, first.group, dims);
}

void redistribute_parts(std::span<Tensor> parts, std::span<const PartMove> moves, const Mesh& mesh) {
  std::vector<size_t> moved;
  // One part for two inputs moves once.
  std::vector<std::pair<size_t, size_t>> again;
  for (size_t i = 0; i < moves.size(); ++i) {
    if (moves[i].from == moves[i].wanted) continue;
    const auto same = std::find_if(moved.begin(), moved.end(), [&](size_t j) {
      return parts[j].is_same(parts[i]) && moves[j].wanted == moves[i].wanted;
    });
    if (same == moved.end()) moved.push_back(i);
    else again.emplace_back(i, *same);
  }
  const auto repeat = [&] {
    for (const auto& [i, j] : again) parts[i] = parts[j];
  };
  if (!mesh->has_coordinate() || moved.empty()) return;
  if (moved.size() == 1) {
    Tensor& part = parts[moved[0]];
    part = redistributed_part(part, *moves[moved[0]].from, *moves[moved[0]].wanted, mesh);
    return repeat();
  }
  std::vector<std::shared_ptr<const PreparedPlan>> prepared;
  std::vector<const RedistributePlan*> plans;
  for (const size_t i : moved) {
    prepared.push_back(RankContext::current().slot<PreparedPlans>().get(*moves[i].from, *moves[i].wanted, mesh));
    plans.push_back(&prepared.back()->plan);
  }
  const StageScope below(0, kBelow);
  for (const std::vector<StepAt>& call : joined_steps(plans)) {
    std::vector<const PreparedStep*> steps;
    std::vector<Tensor> locals;
    RedistributeStep whole = prepared[call[0].plan]->steps[call[0].step].step;
    whole.bytes = 0;
    for (const StepAt& at : call) {
      steps.push_back(&prepared[at.plan]->steps[at.step]);
      locals.push_back(in_dtype(parts[moved[at.plan]], steps.back()->step.from->local_dtype()));
      whole.bytes += steps.back()->step.bytes;
    }
    const std::vector<Tensor> results =
        steps.size() == 1 ? std::vector<Tensor>{steps[0]->run(locals[0])} : run_together(steps, locals);
    for (size_t k = 0; k < call.size(); ++k) {
      Tensor& part = parts[moved[call[k].plan]];
      const Tensor before = std::exchange(part, in_dtype(results[k], steps[k]->step.to->local_dtype()));
      wait_if_dropped(before, part);
    }
    CommCounter::note(whole);
  }
  repeat();
}

Tensor redistributed_part(const Tensor& t, const DTensorSpec& wanted) {
  const Part& part = part_of(t, "redistribute");
  return redistributed_part(part.local, *part.spec, wanted, part.mesh);
}

}  // namespace tutti::dist
