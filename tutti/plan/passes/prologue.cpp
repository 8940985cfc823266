#include "tutti/plan/passes/prologue.h"

#include <algorithm>

#include "tutti/plan/block_step.h"
#include "tutti/plan/failure.h"
#include "tutti/plan/passes/attach.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {
namespace {

class Attacher {
 public:
  Attacher(const Graph& graph, std::vector<Group> groups) : graph_(graph), groups_(graph, std::move(groups)) {}

  AttachPlan run() {
    for (size_t g = 0; g < groups_.size(); ++g) attach_to(static_cast<int32_t>(g));
    plan_.groups = std::move(groups_).in_order();
    return std::move(plan_);
  }

 private:
  void attach_to(int32_t product) {
    const Group& group = groups_[product];
    if (group.nodes.empty() || group.is_kernel || !AttachedGroups::works_in_blocks(groups_.call_of(product))) return;
    const Value& operand = groups_.call_of(product).inputs[0];
    const int32_t g = maker_of(operand, product);
    if (g < 0) return;
    if (const char* reason = why_apart(g, product)) {
      plan_.apart.push_back(
          fmt::format("{} before {}: {}", groups_.ops_of(groups_[g]), groups_.call_of(product).op->name, reason));
      return;
    }
    groups_[product].prologue.push_back(groups_.take(g, product));
    plan_.saved_bytes += 2 * static_cast<double>(numel_of(operand.sizes) * itemsize(operand.dtype));
  }

  // The kernel that makes the operand for this call alone; -1: there is none.
  int32_t maker_of(const Value& operand, int32_t product) {
    for (const int32_t g : groups_.touching(operand.buffer)) {
      if (g != product) return groups_[g].is_kernel && !groups_.has_others(operand.buffer, g, product) ? g : -1;
    }
    return -1;
  }

  // nullptr: it can be attached.
  const char* why_apart(int32_t g, int32_t product) {
    const Group &kernel = groups_[g], &group = groups_[product];
    const Node& call = groups_.call_of(product);
    if (kernel.region != group.region) return "one of them is recomputed for a backward pass";
    if (groups_.looks_before(kernel)) return "an op in it looks at its operands before it runs";
    if (can_report(kernel) && can_fail(call)) return "an op in it and the call can both fail";
    const int32_t operand = call.inputs[0].buffer;
    if (reads(call.inputs.begin() + 1, call.inputs.end(), operand)) return "the call reads it as another operand too";
    for (const Group& epilogue : group.epilogue) {
      if (can_report(kernel) && writes_outside(epilogue))
        return "an op in it can fail, and the call's epilogue writes memory of the caller";
      for (const int32_t n : epilogue.nodes) {
        const std::vector<Value>& read = groups_.node(n).inputs;
        if (reads(read.begin(), read.end(), operand)) return "the call's epilogue reads it too";
      }
      for (const int32_t n : kernel.nodes) {
        if (groups_.writes_into(epilogue, groups_.node(n).inputs))
          return "the call's epilogue writes memory that it reads";
      }
    }
    if (groups_.leads_through_others(g, product)) return "a step between them needs its whole output";
    const auto step = make_prologue(kernel, graph_, std::vector<bool>(graph_.buffers.size(), true), call.inputs[0]);
    if (std::holds_alternative<const char*>(step)) return std::get<const char*>(step);
    return stores_beside(kernel, g, operand) ? "something else reads what it stores beside" : nullptr;
  }

  bool can_report(const Group& kernel) const {
    return std::any_of(kernel.nodes.begin(), kernel.nodes.end(),
                       [&](int32_t n) { return groups_.node(n).fails == Fails::while_writing; });
  }
  bool writes_outside(const Group& kernel) const {
    return std::any_of(kernel.nodes.begin(), kernel.nodes.end(),
                       [&](int32_t n) { return writes_given(groups_.node(n), graph_); });
  }

  template <class It>
  static bool reads(It begin, It end, int32_t buffer) {
    return std::any_of(begin, end, [&](const Value& v) { return v.buffer == buffer; });
  }

  // Whether anything but the kernel, the call and its epilogue included, touches another of its outputs.
  bool stores_beside(const Group& kernel, int32_t g, int32_t operand) const {
    return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](int32_t n) {
      const std::vector<Value>& written = groups_.node(n).outputs;
      return std::any_of(written.begin(), written.end(),
                         [&](const Value& v) { return v.buffer != operand && groups_.has_others(v.buffer, g, g); });
    });
  }

  const Graph& graph_;
  AttachedGroups groups_;
  AttachPlan plan_;
};

}  // namespace

void attach_prologues(PassState& state) {
  AttachPlan plan = Attacher(state.graph, std::move(state.groups)).run();
  state.statistics.prologue_saved_bytes = carry_out(std::move(plan), state);
}

}  // namespace tutti::graph
