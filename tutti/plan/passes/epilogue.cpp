#include "tutti/plan/passes/epilogue.h"

#include <algorithm>

#include "tutti/plan/block_step.h"
#include "tutti/plan/passes/attach.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {
namespace {

// A matrix of so many bytes is read again from the nearest cache, in less time than starting a kernel on its blocks
// takes.
constexpr int64_t kNearBytes = int64_t{1} << 13;

int64_t bytes_of_matrix(const Value& output) {
  const int d = output.sizes.ndim();
  int64_t elements = 1;
  for (int k = std::max(d - 2, 0); k < d; ++k) elements *= output.sizes[static_cast<size_t>(k)];
  return elements * itemsize(output.dtype);
}

class Attacher {
 public:
  Attacher(const Graph& graph, std::vector<Group> groups, Epilogues which)
      : graph_(graph), which_(which), groups_(graph, std::move(groups)) {}

  AttachPlan run() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[static_cast<int32_t>(g)].is_kernel) attach(static_cast<int32_t>(g));
    }
    plan_.groups = std::move(groups_).in_order();
    return std::move(plan_);
  }

 private:
  struct Candidate {
    int32_t product;  // a group of one call
    double saved_bytes;
  };

  void attach(int32_t g) {
    for (const Candidate& c : candidates(g)) {
      const char* reason = why_apart(c, g);
      if (reason != nullptr) {
        plan_.apart.push_back(
            fmt::format("{} after {}: {}", groups_.ops_of(groups_[g]), groups_.call_of(c.product).op->name, reason));
        continue;
      }
      groups_[c.product].epilogue.push_back(groups_.take(g, c.product));
      plan_.saved_bytes += c.saved_bytes;
      return;
    }
  }

  // The products whose output the kernel reads, that which saves most first, then the latest.
  std::vector<Candidate> candidates(int32_t g) {
    std::vector<Candidate> found;
    for (const int32_t n : groups_[g].nodes) {
      for (const int32_t p : groups_.before(n)) {
        const int32_t product = groups_.group_of(p);
        if (product == g || !AttachedGroups::works_in_blocks(groups_.node(p))) continue;
        const Value& output = groups_.node(p).outputs[0];
        const auto reads = [&](const Value& v) { return v.buffer == output.buffer && v.version == output.version; };
        const std::vector<Value>& inputs = groups_.node(n).inputs;
        if (std::none_of(inputs.begin(), inputs.end(), reads)) continue;
        if (std::any_of(found.begin(), found.end(), [&](const Candidate& c) { return c.product == product; })) continue;
        const double bytes = static_cast<double>(numel_of(output.sizes) * itemsize(output.dtype));
        found.push_back({product, groups_.has_others(output.buffer, product, g) ? bytes : 2 * bytes});
      }
    }
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
      return a.saved_bytes != b.saved_bytes ? a.saved_bytes > b.saved_bytes : a.product > b.product;
    });
    return found;
  }

  // nullptr: it can be attached.
  const char* why_apart(const Candidate& candidate, int32_t g) {
    const int32_t product = candidate.product;
    const Group& kernel = groups_[g];
    const Node& call = groups_.call_of(product);
    if (!groups_[product].epilogue.empty()) return "the call has an epilogue already";
    if (kernel.region != groups_[product].region) return "one of them is recomputed for a backward pass";
    if (groups_.looks_before(kernel)) return "an op in it looks at its operands before it runs";
    if (groups_.writes_into(kernel, call.inputs)) return "it writes memory that the call reads";
    if (groups_.leads_through_others(product, g)) return "a step between them needs the whole output";
    const auto step = make_epilogue(kernel, graph_, std::vector<bool>(graph_.buffers.size(), true), call.outputs[0]);
    if (std::holds_alternative<const char*>(step)) return std::get<const char*>(step);
    if (which_ == Epilogues::all) return nullptr;
    if (bytes_of_matrix(call.outputs[0]) <= kNearBytes) return "the output is small enough for the nearest cache";
    const bool saves = candidate.saved_bytes > 0 && !reads_beside(std::get<BlockStep>(step));
    return saves ? nullptr : "it reads another operand of the output's size";
  }

  // Whether another operand has an element for each of the output's.
  static bool reads_beside(const BlockStep& step) {
    const LoopNest& nest = step.kernel.plan.nest;
    for (size_t k = 0; k < step.kernel.spec.inputs.size(); ++k) {
      bool moves_always = k != step.block_operand;
      for (int d = 0; d < nest.sizes.ndim(); ++d)
        moves_always = moves_always && (nest.sizes[d] == 1 || nest.operands[k].strides[d] != 0);
      if (moves_always) return true;
    }
    return false;
  }

  const Graph& graph_;
  const Epilogues which_;
  AttachedGroups groups_;
  AttachPlan plan_;
};

}  // namespace

void attach_epilogues(PassState& state) {
  AttachPlan plan = Attacher(state.graph, std::move(state.groups), state.options.epilogues).run();
  state.statistics.epilogue_saved_bytes = carry_out(std::move(plan), state);
}

}  // namespace tutti::graph
