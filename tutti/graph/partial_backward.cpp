#include "tutti/graph/partial_backward.h"

#include "tutti/graph/passes/undefined.h"

namespace tutti::graph {

const PartialBackwards::Partial& PartialBackwards::of(const std::vector<bool>& defined) const {
  const std::lock_guard lock(mutex_);
  const auto it = made_.find(defined);
  return it != made_.end() ? it->second : made_.emplace(defined, make(defined)).first->second;
}

PartialBackwards::Partial PartialBackwards::make(const std::vector<bool>& defined) const {
  std::vector<bool> is_cotangent(graph_.buffers.size(), false), undefined = is_cotangent, is_read = is_cotangent;
  for (size_t k = 0; k < buffers_.size(); ++k) {
    if (buffers_[k] < 0) continue;
    is_cotangent[static_cast<size_t>(buffers_[k])] = true;
    undefined[static_cast<size_t>(buffers_[k])] = !defined[k];
  }
  Graph graph = without_undefined(graph_, is_cotangent, undefined);
  for (const Node& node : graph.nodes) {
    for (const Value& v : node.inputs) is_read[static_cast<size_t>(v.buffer)] = true;
  }
  Partial partial;
  for (size_t k = 0; k < buffers_.size(); ++k) partial.needs_zeros.push_back(!defined[k] && buffers_[k] >= 0 && is_read[static_cast<size_t>(buffers_[k])]);
  partial.executable = std::make_unique<const Executable>(std::move(graph), options_);
  return partial;
}

}  // namespace tutti::graph
