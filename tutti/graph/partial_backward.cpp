#include "tutti/graph/partial_backward.h"

#include <algorithm>

#include "tutti/plan/passes/undefined.h"

namespace tutti::graph {

const PartialBackwards::Partial& PartialBackwards::of(const std::vector<Arrived>& arrived) const {
  const std::lock_guard lock(mutex_);
  const auto it = made_.find(arrived);
  return it != made_.end() ? it->second : made_.emplace(arrived, make(arrived)).first->second;
}

PartialBackwards::Partial PartialBackwards::make(const std::vector<Arrived>& arrived) const {
  Graph graph = graph_;
  std::vector<int32_t> further;
  for (size_t k = 0; k < cotangents_.size(); ++k) {
    const int32_t behind = std::max(arrived[k].behind - 1, 0);
    if (!arrived[k].in_front && behind == 0) continue;
    const std::vector<int32_t> added = add_cotangents(graph, cotangents_[k], arrived[k].in_front, behind,
                                                      sources_ + static_cast<int32_t>(further.size()));
    further.insert(further.end(), added.begin(), added.end());
  }
  std::vector<bool> is_cotangent(graph.buffers.size(), false), undefined = is_cotangent, is_read = is_cotangent;
  for (size_t k = 0; k < cotangents_.size(); ++k) {
    if (cotangents_[k].buffer < 0) continue;
    is_cotangent[static_cast<size_t>(cotangents_[k].buffer)] = true;
    undefined[static_cast<size_t>(cotangents_[k].buffer)] = arrived[k].behind == 0;
  }
  for (const int32_t buffer : further) is_cotangent[static_cast<size_t>(buffer)] = true;
  graph = without_undefined(graph, is_cotangent, undefined);
  for (const Node& node : graph.nodes) {
    for (const Value& v : node.inputs) is_read[static_cast<size_t>(v.buffer)] = true;
  }
  Partial partial;
  for (size_t k = 0; k < cotangents_.size(); ++k) {
    partial.needs_zeros.push_back(arrived[k].behind == 0 && cotangents_[k].buffer >= 0 &&
                                  is_read[static_cast<size_t>(cotangents_[k].buffer)]);
  }
  partial.executable = std::make_unique<const Executable>(std::move(graph), options_);
  return partial;
}

}  // namespace tutti::graph
