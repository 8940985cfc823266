#include "tutti/graph/passes/epilogue.h"

#include <algorithm>

#include "tutti/graph/block_step.h"
#include "tutti/graph/dependencies.h"
#include "tutti/graph/passes/group_order.h"

namespace tutti::graph {
namespace {

class Attacher {
 public:
  Attacher(const Graph& graph, std::vector<Group> groups, Epilogues which)
      : graph_(graph), which_(which), groups_(std::move(groups)), before_(dependencies_of(graph)), after_(graph.nodes.size()), step_of_(graph.nodes.size(), -1),
        touched_by_(graph.buffers.size()), is_result_(graph.buffers.size(), false) {
    for (size_t n = 0; n < before_.size(); ++n) {
      for (const int32_t p : before_[n]) after_[static_cast<size_t>(p)].push_back(static_cast<int32_t>(n));
    }
    for (size_t g = 0; g < groups_.size(); ++g) {
      for (const int32_t n : groups_[g].nodes) {
        step_of_[static_cast<size_t>(n)] = static_cast<int32_t>(g);
        const Node& node = graph_.nodes[static_cast<size_t>(n)];
        for (const auto* values : {&node.inputs, &node.outputs}) {
          for (const Value& v : *values) touched_by_[static_cast<size_t>(v.buffer)].push_back(static_cast<int32_t>(g));
        }
      }
    }
    for (const Value& v : graph_.results) {
      if (v.buffer >= 0) is_result_[static_cast<size_t>(v.buffer)] = true;
    }
  }

  EpiloguePlan run() {
    for (size_t g = 0; g < groups_.size(); ++g) {
      if (groups_[g].is_kernel) attach(static_cast<int32_t>(g));
    }
    std::erase_if(groups_, [](const Group& group) { return group.nodes.empty(); });
    plan_.groups = in_order(graph_, before_, std::move(groups_));
    return std::move(plan_);
  }

 private:
  struct Candidate {
    int32_t product;  // a group of one call
    double saved_bytes;
  };

  static bool hands_on_blocks(const Node& node) {
    return node.op->kernel_in_blocks != nullptr && node.outputs.size() == 1 && !node.control && !has_effect(node);
  }
  Group& group(int32_t g) { return groups_[static_cast<size_t>(g)]; }
  const Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  const Node& call_of(int32_t product) { return node(group(product).nodes[0]); }

  void attach(int32_t g) {
    for (const Candidate& c : candidates(g)) {
      const char* reason = why_apart(c, g);
      if (reason != nullptr) {
        plan_.apart.push_back(fmt::format("{} after {}: {}", ops_of(group(g)), call_of(c.product).op->name, reason));
        continue;
      }
      for (const int32_t n : group(g).nodes) step_of_[static_cast<size_t>(n)] = c.product;
      Group kernel = std::move(group(g));
      group(g) = {};
      group(c.product).epilogue.push_back(std::move(kernel));
      plan_.saved_bytes += c.saved_bytes;
      return;
    }
  }

  // The products whose output the kernel reads, that which saves most first, then the latest.
  std::vector<Candidate> candidates(int32_t g) {
    std::vector<Candidate> found;
    for (const int32_t n : group(g).nodes) {
      for (const int32_t p : before_[static_cast<size_t>(n)]) {
        const int32_t product = step_of_[static_cast<size_t>(p)];
        if (product == g || !hands_on_blocks(node(p))) continue;
        const Value& output = node(p).outputs[0];
        const auto reads = [&](const Value& v) { return v.buffer == output.buffer && v.version == output.version; };
        if (std::none_of(node(n).inputs.begin(), node(n).inputs.end(), reads)) continue;
        if (std::any_of(found.begin(), found.end(), [&](const Candidate& c) { return c.product == product; })) continue;
        const double bytes = static_cast<double>(numel_of(output.sizes) * itemsize(output.dtype));
        found.push_back({product, is_read_elsewhere(output.buffer, product, g) ? bytes : 2 * bytes});
      }
    }
    std::sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
      return a.saved_bytes != b.saved_bytes ? a.saved_bytes > b.saved_bytes : a.product > b.product;
    });
    return found;
  }

  bool is_read_elsewhere(int32_t buffer, int32_t product, int32_t g) const {
    const auto b = static_cast<size_t>(buffer);
    return is_result_[b] || graph_.buffers[b].kind == Buffer::Kind::given ||
           std::any_of(touched_by_[b].begin(), touched_by_[b].end(), [&](int32_t h) { return h != product && h != g; });
  }

  // nullptr: it can be attached.
  const char* why_apart(const Candidate& candidate, int32_t g) {
    const int32_t product = candidate.product;
    const Group& kernel = group(g);
    const Node& call = call_of(product);
    if (!group(product).epilogue.empty()) return "the call has an epilogue already";
    if (kernel.region != group(product).region) return "one of them is recomputed for a backward pass";
    if (std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](int32_t n) { return node(n).op->check != nullptr; }))
      return "an op in it looks at its operands before it runs";
    for (const int32_t n : kernel.nodes) {
      for (const Value& written : node(n).outputs) {
        if (std::any_of(call.inputs.begin(), call.inputs.end(), [&](const Value& v) { return v.buffer == written.buffer; }))
          return "it writes memory that the call reads";
      }
    }
    if (leads_through_others(product, g)) return "a step between them needs the whole output";
    const auto step = make_block_step(kernel, graph_, std::vector<bool>(graph_.buffers.size(), true), call.outputs[0]);
    if (std::holds_alternative<const char*>(step)) return std::get<const char*>(step);
    const bool saves = candidate.saved_bytes > 0 && !reads_beside(std::get<BlockStep>(step));
    return saves || which_ == Epilogues::all ? nullptr : "it reads another operand of the output's size";
  }

  // Whether another operand has an element for each of the output's.
  static bool reads_beside(const BlockStep& step) {
    const LoopNest& nest = step.kernel.nest;
    for (size_t k = 0; k < step.kernel.spec.inputs.size(); ++k) {
      bool moves_always = k != step.block_operand;
      for (int d = 0; d < nest.sizes.ndim(); ++d) moves_always = moves_always && (nest.sizes[d] == 1 || nest.operands[k].strides[d] != 0);
      if (moves_always) return true;
    }
    return false;
  }

  // Whether some step must run after the product and before the kernel.
  bool leads_through_others(int32_t product, int32_t g) {
    std::vector<bool> seen(groups_.size(), false);
    std::vector<int32_t> open{product};
    seen[static_cast<size_t>(product)] = true;
    while (!open.empty()) {
      const int32_t from = open.back();
      open.pop_back();
      bool found = false;
      for_each_node(group(from), [&](int32_t n) {
        for (const int32_t m : after_[static_cast<size_t>(n)]) {
          const int32_t to = step_of_[static_cast<size_t>(m)];
          if (to == g && from != product) found = true;
          if (to == g || seen[static_cast<size_t>(to)]) continue;
          seen[static_cast<size_t>(to)] = true;
          open.push_back(to);
        }
      });
      if (found) return true;
    }
    return false;
  }

  std::string ops_of(const Group& kernel) const {
    std::string text;
    for (const int32_t n : kernel.nodes) text += (text.empty() ? "" : "+") + std::string(node(n).op->name);
    return text;
  }

  const Graph& graph_;
  const Epilogues which_;
  std::vector<Group> groups_;  // those that were attached are left empty
  const std::vector<std::vector<int32_t>> before_;
  std::vector<std::vector<int32_t>> after_;
  std::vector<int32_t> step_of_;                  // per node: its group, or the call that its group is attached to
  std::vector<std::vector<int32_t>> touched_by_;  // per buffer: groups as they came
  std::vector<bool> is_result_;
  EpiloguePlan plan_;
};

}  // namespace

EpiloguePlan attach_epilogues(const Graph& graph, std::vector<Group> groups, Epilogues which) {
  return Attacher(graph, std::move(groups), which).run();
}

}  // namespace tutti::graph
