#include <algorithm>
#include <bit>
#include <map>
#include <numeric>
#include <queue>

#include <fmt/format.h>

#include "tutti/core/error.h"
#include "tutti/dist/moves.h"
#include "tutti/dist/redistribute.h"

namespace tutti::dist {
namespace {

Placements with_axis(Placements placements, int axis, Placement p) {
  placements[static_cast<size_t>(axis)] = p;
  return placements;
}

bool is_sum(const Placement& p) { return p.op() == PartialOp::sum || p.op() == PartialOp::avg; }

// The bytes of a part, on average over the mesh.
double bytes_held(const DTensorSpec& spec) {
  double elements = 0;
  const auto all = coordinates_of(spec.mesh_shape());
  for (const auto& at : all) elements += static_cast<double>(numel_of(spec.local_sizes(at)));
  return elements / static_cast<double>(all.size()) * static_cast<double>(itemsize(spec.local_dtype()));
}

// A search over layouts for the cheapest way.
class Search {
 public:
  Search(const DTensorSpec& from, const DTensorSpec& to, const CostModel& model)
      : from_(from), to_(to), model_(model) {}

  RedistributePlan run() {
    // Equally dear layouts are looked at in the order in which they were found: ids and addresses differ between ranks,
    // which must all come to one plan.
    using Item = std::tuple<double, int, int, const DTensorSpec*>;
    const auto dearer = [](const Item& a, const Item& b) {
      return std::tuple(std::get<0>(a), std::get<1>(a), std::get<2>(a)) >
             std::tuple(std::get<0>(b), std::get<1>(b), std::get<2>(b));
    };
    std::priority_queue<Item, std::vector<Item>, decltype(dearer)> open(dearer);
    int found = 0;
    reached_[&from_] = {0, 0, {}};
    open.push({0, 0, found++, &from_});
    while (!open.empty()) {
      const auto [cost, steps, number, spec] = open.top();
      open.pop();
      if (reached_.at(spec).cost < cost || (reached_.at(spec).cost == cost && reached_.at(spec).steps < steps))
        continue;
      if (spec == &to_) return way();
      edges_.clear();
      add_edges(*spec);
      for (RedistributeStep& step : edges_) {
        const Reached next{cost + step.cost, steps + 1, step};
        const auto it = reached_.find(step.to);
        if (it != reached_.end() && std::pair(it->second.cost, it->second.steps) <= std::pair(next.cost, next.steps))
          continue;
        reached_[step.to] = next;
        open.push({next.cost, next.steps, found++, step.to});
      }
    }
    throw UsageError(
        fmt::format("redistribute: {} cannot become {}: {}", from_.to_string(), to_.to_string(), why_not()));
  }

 private:
  struct Reached {
    double cost;
    int steps;
    RedistributeStep step;
  };

  std::string why_not() const {
    for (const Placement& p : to_.placements()) {
      if (p.is_partial() && p.op() == PartialOp::prod)
        return "a value is no product of equal parts; keep it replicated";
    }
    return "no step leads there";
  }

  RedistributePlan way() const {
    RedistributePlan plan{.from = &from_, .to = &to_, .steps = {}};
    for (const DTensorSpec* at = &to_; at != &from_; at = plan.steps.front().from)
      plan.steps.insert(plan.steps.begin(), reached_.at(at).step);
    for (const RedistributeStep& step : plan.steps) plan.bytes += step.bytes, plan.cost += step.cost;
    return plan;
  }

  // Null where there is no such layout on the way: pieces that do not divide, or two kinds of terms.
  static const DTensorSpec* after(const DTensorSpec& spec, Placements placements, const std::vector<int>& order,
                                  Cut cut) {
    SpecFields fields = spec.fields();
    fields.placements = std::move(placements);
    fields.order = order;
    fields.cut = cut;
    try {
      return &DTensorSpec::of(std::move(fields), "redistribute");
    } catch (const UsageError&) {
      return nullptr;
    }
  }
  double ranks_over(const std::vector<int>& axes) const {
    double ranks = 1;
    for (const int axis : axes) ranks *= static_cast<double>(from_.mesh_shape()[static_cast<size_t>(axis)]);
    return ranks;
  }
  void add(StepKind kind, std::vector<int> axes, const DTensorSpec& from, const DTensorSpec& to, double bytes,
           bool communicates) {
    const double ranks = ranks_over(axes);
    edges_.push_back({kind, std::move(axes), &from, &to, bytes,
                      communicates ? model_.of(kind, static_cast<int64_t>(ranks), bytes) : 0});
  }

  void add_edges(const DTensorSpec& s) {
    add_move(s);
    add_reductions(s);
    add_fill(s);
  }

  // Everything that is not pending goes where it belongs, at once.
  void add_move(const DTensorSpec& s) {
    Placements target = s.placements();
    for (size_t a = 0; a < target.size(); ++a) {
      if (!target[a].is_partial())
        target[a] = to_.placements()[a].is_partial() ? Placement::replicate() : to_.placements()[a];
    }
    const DTensorSpec* t = after(s, std::move(target), to_.order(), to_.cut());
    if (t == nullptr || t == &s) return;
    const std::vector<int> axes = moved_axes(s, *t);
    const double bytes = lacking_elements(s, *t) * static_cast<double>(itemsize(s.local_dtype()));
    if (axes.empty()) return add(StepKind::cut, {}, s, *t, 0, false);
    add(is_even_gather(s, *t, axes) ? StepKind::gather : StepKind::exchange, axes, s, *t, bytes, true);
  }

  // One axis goes from Shard to Replicate, and all parts along it are equally large.
  static bool is_even_gather(const DTensorSpec& s, const DTensorSpec& t, const std::vector<int>& axes) {
    if (axes.size() != 1) return false;
    const auto axis = static_cast<size_t>(axes[0]);
    const Placement& p = s.placements()[axis];
    if (!p.is_shard() || !t.placements()[axis].is_replicate() ||
        after(s, with_axis(s.placements(), axes[0], t.placements()[axis]), s.order(), s.cut()) != &t)
      return false;
    if (s.axes_of(p.dim()).back() != axes[0]) return false;
    int64_t divisor = 1;
    for (const int a : s.axes_of(p.dim())) {
      if (s.placements()[static_cast<size_t>(a)].pieces() != 1) return false;
      divisor *= s.mesh_shape()[static_cast<size_t>(a)];
    }
    return s.sizes()[static_cast<size_t>(p.dim())] % divisor == 0;
  }

  // The axes whose pending values must be reduced, the innermost first: the tree over the ranks of several axes is
  // nested so.
  std::vector<int> pending(const DTensorSpec& s) const {
    std::vector<int> axes;
    for (size_t a = s.placements().size(); a-- > 0;) {
      if (s.placements()[a].is_partial() && !(s.placements()[a] == to_.placements()[a]))
        axes.push_back(static_cast<int>(a));
    }
    return axes;
  }

  void add_reductions(const DTensorSpec& s) {
    const std::vector<int> axes = pending(s);
    if (axes.empty()) return;
    const Placement& op = s.placements()[static_cast<size_t>(axes[0])];
    const double held = bytes_held(s);
    std::vector<int> together;
    Placements target = s.placements();
    for (const int axis : axes) {
      if (!(s.placements()[static_cast<size_t>(axis)] == op)) break;
      // Halving over the ranks of both axes is halving over the outer axis of halves over the inner one where the outer
      // is a power of two.
      if (!together.empty() && is_sum(op) && is_floating(s.dtype()) &&
          !std::has_single_bit(static_cast<uint64_t>(s.mesh_shape()[static_cast<size_t>(axis)])))
        break;
      if (!together.empty() && op.op() == PartialOp::avg) break;
      together.insert(together.begin(), axis);
      target = with_axis(std::move(target), axis, Placement::replicate());
      const double ranks = ranks_over(together);
      add(StepKind::all_reduce, together, s, *after(s, target, s.order(), s.cut()), 2 * held * (ranks - 1) / ranks,
          ranks > 1);
    }
    const int axis = axes[0];
    const Placement& wanted = to_.placements()[static_cast<size_t>(axis)];
    if (!wanted.is_shard() || wanted.pieces() != 1) return;
    const Cut cut = s.has_shard() ? s.cut() : to_.cut();
    // The new shard is the innermost of its dim: in the order that s has, and in that of the target.
    std::vector<int> own = s.order();
    own.erase(std::find(own.begin(), own.end(), axis));
    own.push_back(axis);
    for (const std::vector<int>& order : {own, to_.order()}) {
      const DTensorSpec* t = after(s, with_axis(s.placements(), axis, wanted), order, cut);
      if (t == nullptr) continue;
      if (!cuts_innermost(s, *t, axis, wanted.dim())) continue;
      const double ranks = ranks_over({axis});
      add(StepKind::reduce_scatter, {axis}, s, *t, held * (ranks - 1) / ranks, ranks > 1);
    }
  }

  // Whether `t` is `s` but for `axis`, which cuts what the other axes leave of `dim`. An order of the target may turn
  // other dims around, too.
  static bool cuts_innermost(const DTensorSpec& s, const DTensorSpec& t, int axis, int dim) {
    for (int d = 0; d < s.sizes().ndim(); ++d) {
      std::vector<int> wanted = s.axes_of(d);
      if (d == dim) wanted.push_back(axis);
      if (t.axes_of(d) != wanted) return false;
    }
    return true;
  }

  void add_fill(const DTensorSpec& s) {
    for (size_t a = 0; a < s.placements().size(); ++a) {
      const Placement& wanted = to_.placements()[a];
      if (!wanted.is_partial() || !s.placements()[a].is_replicate() || wanted.op() == PartialOp::prod) continue;
      const DTensorSpec* t = after(s, with_axis(s.placements(), static_cast<int>(a), wanted), s.order(), s.cut());
      if (t != nullptr) add(StepKind::fill, {static_cast<int>(a)}, s, *t, 0, false);
    }
  }

  const DTensorSpec &from_, &to_;
  const CostModel model_;
  std::map<const DTensorSpec*, Reached> reached_;
  std::vector<RedistributeStep> edges_;
};

}  // namespace

int RedistributePlan::collectives() const {
  return static_cast<int>(std::count_if(steps.begin(), steps.end(), [](const RedistributeStep& s) {
    return s.kind != StepKind::cut && s.kind != StepKind::fill;
  }));
}

std::string RedistributePlan::to_string() const {
  std::string text = fmt::format("{} -> {}: {}", from->to_string(), to->to_string(),
                                 steps.empty() ? "nothing to do" : fmt::format("{:.0f} bytes a rank", bytes));
  for (const RedistributeStep& s : steps) {
    text += fmt::format("\n  {}{} -> {}{}", name_of(s.kind),
                        s.axes.empty() ? "" : fmt::format(" over mesh dim {}", fmt::join(s.axes, ", ")),
                        dist::to_string(s.to->placements()), s.bytes > 0 ? fmt::format(", {:.0f} bytes", s.bytes) : "");
  }
  return text;
}

RedistributePlan plan_redistribution(const DTensorSpec& from, const DTensorSpec& to, const CostModel& model) {
  TUTTI_CHECK(from.mesh_id() == to.mesh_id(),
              "redistribute: {} and {} are on different meshes; move the whole tensor with full_tensor() and "
              "distribute_tensor()",
              from.to_string(), to.to_string());
  TUTTI_CHECK(from.sizes() == to.sizes() && from.dtype() == to.dtype(), "redistribute: {} and {} are not one tensor",
              from.to_string(), to.to_string());
  return Search(from, to, model).run();
}

}  // namespace tutti::dist
