#include "tutti/plan/passes/attach.h"

#include <algorithm>

#include "tutti/plan/dependencies.h"
#include "tutti/plan/passes/group_order.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {

double carry_out(AttachPlan plan, PassState& state) {
  state.groups = std::move(plan.groups);
  std::vector<std::string>& apart = state.statistics.apart;
  apart.insert(apart.end(), plan.apart.begin(), plan.apart.end());
  return plan.saved_bytes;
}

AttachedGroups::AttachedGroups(const Graph& graph, std::vector<Group> groups)
    : graph_(graph),
      groups_(std::move(groups)),
      before_(dependencies_of(graph)),
      after_(graph.nodes.size()),
      group_of_(graph.nodes.size(), -1),
      touched_by_(graph.buffers.size()),
      is_outside_(graph.buffers.size()) {
  for (size_t n = 0; n < before_.size(); ++n) {
    for (const int32_t p : before_[n]) after_[static_cast<size_t>(p)].push_back(static_cast<int32_t>(n));
  }
  for (size_t g = 0; g < groups_.size(); ++g) {
    for_each_node(groups_[g], [&](int32_t n) {
      group_of_[static_cast<size_t>(n)] = static_cast<int32_t>(g);
      for (const auto* values : {&node(n).inputs, &node(n).outputs}) {
        for (const Value& v : *values) touched_by_[static_cast<size_t>(v.buffer)].push_back(static_cast<int32_t>(g));
      }
    });
  }
  for (size_t b = 0; b < is_outside_.size(); ++b) is_outside_[b] = graph.buffers[b].kind == Buffer::Kind::given;
  for (const Value& v : graph.results) {
    if (v.buffer >= 0) is_outside_[static_cast<size_t>(v.buffer)] = true;
  }
}

bool AttachedGroups::has_others(int32_t buffer, int32_t g, int32_t h) const {
  const std::vector<int32_t>& all = touching(buffer);
  return is_outside(buffer) ||
         std::any_of(all.begin(), all.end(), [&](int32_t other) { return other != g && other != h; });
}

bool AttachedGroups::writes_into(const Group& kernel, const std::vector<Value>& values) const {
  return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](int32_t n) {
    const std::vector<Value>& written = node(n).outputs;
    return std::any_of(written.begin(), written.end(), [&](const Value& w) {
      return std::any_of(values.begin(), values.end(), [&](const Value& v) { return v.buffer == w.buffer; });
    });
  });
}

bool AttachedGroups::leads_through_others(int32_t from, int32_t to) {
  std::vector<bool> seen(groups_.size(), false);
  std::vector<int32_t> open{from};
  seen[static_cast<size_t>(from)] = true;
  while (!open.empty()) {
    const int32_t g = open.back();
    open.pop_back();
    bool found = false;
    for_each_node((*this)[g], [&](int32_t n) {
      for (const int32_t m : after_[static_cast<size_t>(n)]) {
        const int32_t next = group_of(m);
        if (next == to && g != from) found = true;
        if (next == to || seen[static_cast<size_t>(next)]) continue;
        seen[static_cast<size_t>(next)] = true;
        open.push_back(next);
      }
    });
    if (found) return true;
  }
  return false;
}

bool AttachedGroups::works_in_blocks(const Node& node) {
  return node.op->kernel_in_blocks != nullptr && node.outputs.size() == 1 && !node.control && !has_effect(node);
}

bool AttachedGroups::looks_before(const Group& kernel) const {
  return std::any_of(kernel.nodes.begin(), kernel.nodes.end(), [&](int32_t n) { return node(n).op->check != nullptr; });
}

std::string AttachedGroups::ops_of(const Group& kernel) const {
  std::string text;
  for (const int32_t n : kernel.nodes) text += (text.empty() ? "" : "+") + std::string(node(n).op->name);
  return text;
}

Group AttachedGroups::take(int32_t g, int32_t call) {
  for (const int32_t n : (*this)[g].nodes) group_of_[static_cast<size_t>(n)] = call;
  Group kernel = std::move((*this)[g]);
  (*this)[g] = {};
  return kernel;
}

std::vector<Group> AttachedGroups::in_order() && {
  std::erase_if(groups_, [](const Group& group) { return group.nodes.empty(); });
  return graph::in_order(graph_, before_, std::move(groups_));
}

}  // namespace tutti::graph
