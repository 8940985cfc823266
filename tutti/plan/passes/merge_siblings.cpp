#include "tutti/plan/passes/merge_siblings.h"

#include <algorithm>
#include <map>
#include <utility>

#include "tutti/plan/node_call.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {
namespace {

class Merger {
 public:
  explicit Merger(Graph& graph) : graph_(graph), effects_before_{0} {
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      for (const Value& v : graph.nodes[n].outputs) writer_[{v.buffer, v.version}] = n;
      effects_before_.push_back(effects_before_[n] + (has_effect(graph.nodes[n]) ? 1 : 0));
    }
  }

  void run(ExecutableStatistics& statistics) {
    std::vector<bool> is_gone(graph_.nodes.size(), false);
    std::map<size_t, const char*> apart;  // calls that are in no family, with the first reason
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const SiblingOps* facet = graph_.nodes[n].op->siblings;
      if (is_gone[n] || facet == nullptr) continue;
      std::vector<size_t> family{n};
      for (size_t m = n + 1; m < graph_.nodes.size(); ++m) {
        if (is_gone[m] || !is_sibling(n, m, facet->shared_inputs)) continue;
        const char* reason = why_apart(n, m, *facet, family.size());
        if (reason != nullptr) {
          apart.emplace(m, reason);
          continue;
        }
        family.push_back(m);
        is_gone[m] = true;
      }
      if (family.size() == 1) continue;
      for (const size_t m : family) apart.erase(m);
      statistics.siblings += static_cast<int64_t>(family.size()) - 1;
      merge(family, *facet);
    }
    for (const auto& [m, reason] : apart)
      statistics.apart.push_back(fmt::format("{} beside another one of the same x: {}", describe(m), reason));
    std::vector<Node> left;
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!is_gone[n]) left.push_back(std::move(graph_.nodes[n]));
    }
    graph_.nodes = std::move(left);
  }

 private:
  bool is_sibling(size_t n, size_t m, int shared) const {
    const Node &first = graph_.nodes[n], &other = graph_.nodes[m];
    return other.op == first.op &&
           std::equal(first.inputs.begin(), first.inputs.begin() + shared, other.inputs.begin(), is_same);
  }

  // Tensors without elements are alike wherever they lie.
  static bool is_same(const Value& a, const Value& b) {
    return a == b || (numel_of(a.sizes) == 0 && a.dtype == b.dtype && a.sizes == b.sizes);
  }

  // Null: call m joins the family of call n.
  const char* why_apart(size_t n, size_t m, const SiblingOps& facet, size_t members) const {
    const Node &first = graph_.nodes[n], &other = graph_.nodes[m];
    if (members > std::size(facet.ops) || facet.ops[members - 1] == nullptr) return "no op takes so many calls";
    if (!(first.attrs == other.attrs)) return "their attrs differ";
    if (first.origin.region != other.origin.region) return "one of them is recomputed for a backward pass";
    for (const Node* node : {&first, &other}) {
      if (!node->after.empty() || !node->keys.empty() || has_effect(*node)) return "it waits for other steps";
    }
    if (first.fails != Fails::never && effects_before_[m] != effects_before_[n])
      return "it can fail after a step between them has written memory";
    const auto begin = other.inputs.begin() + facet.shared_inputs;
    if (!std::all_of(begin, other.inputs.end(), [&](const Value& v) { return is_there(v, n); }))
      return "it reads what is computed between them";
    const NodeCall own(first, graph_), its(other, graph_);
    return facet.apart == nullptr ? nullptr : facet.apart(own.call, its.call);
  }

  // Whether the value exists, and is not overwritten yet, where node n stands.
  bool is_there(const Value& v, size_t n) const {
    const auto made = writer_.find({v.buffer, v.version});
    return made == writer_.end() || made->second < n;
  }

  void merge(const std::vector<size_t>& family, const SiblingOps& facet) {
    Node& first = graph_.nodes[family[0]];
    first.op = facet.ops[family.size() - 2];
    for (size_t i = 1; i < family.size(); ++i) {
      const Node& other = graph_.nodes[family[i]];
      first.inputs.insert(first.inputs.end(), other.inputs.begin() + facet.shared_inputs, other.inputs.end());
      first.outputs.insert(first.outputs.end(), other.outputs.begin(), other.outputs.end());
    }
  }

  std::string describe(size_t n) const {
    const Node& node = graph_.nodes[n];
    return fmt::format("{} {}", node.op->name, to_string(node.outputs[0]));
  }

  Graph& graph_;
  std::map<std::pair<int32_t, int32_t>, size_t> writer_;  // by buffer and version
  std::vector<int64_t> effects_before_;                   // how many nodes before each have effects
};

}  // namespace

void merge_siblings(PassState& state) { Merger(state.graph).run(state.statistics); }

}  // namespace tutti::graph
