#include "tutti/plan/passes/schedule_collectives.h"

#include <algorithm>
#include <functional>
#include <map>
#include <queue>

#include "tutti/plan/dependencies.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {
namespace {

int64_t bytes_of(const Node& node) {
  int64_t bytes = 0;
  for (const Value& v : node.outputs) bytes += numel_of(v.sizes) * itemsize(v.dtype);
  return bytes;
}

class Scheduler {
 public:
  Scheduler(Graph& graph, int64_t limit)
      : graph_(graph), limit_(limit), after_(graph.nodes.size()), missing_(graph.nodes.size(), 0) {
    const auto before = dependencies_of(graph);
    for (size_t n = 0; n < before.size(); ++n) {
      missing_[n] = static_cast<int32_t>(before[n].size());
      for (const int32_t p : before[n]) after_[static_cast<size_t>(p)].push_back(static_cast<int32_t>(n));
    }
  }

  int64_t run() {
    for (size_t n = 0; n < missing_.size(); ++n) {
      if (missing_[n] == 0) make_ready(static_cast<int32_t>(n));
    }
    int64_t moved = 0;
    while (order_.size() < missing_.size()) {
      // Ordered nodes follow each other, so one transfer at most is ready.
      if (transfer_ >= 0 && under_way_ + bytes_of(node(transfer_)) <= limit_) {
        moved += transfer_ != ready_.top();
        emit(transfer_);
        continue;
      }
      const int32_t n = ready_.top();
      ready_.pop();
      if (!is_emitted(n)) emit(n);
    }
    std::vector<Node> nodes;
    for (const int32_t n : order_) nodes.push_back(std::move(graph_.nodes[static_cast<size_t>(n)]));
    graph_.nodes = std::move(nodes);
    return moved;
  }

 private:
  const Node& node(int32_t n) const { return graph_.nodes[static_cast<size_t>(n)]; }
  bool is_emitted(int32_t n) const { return missing_[static_cast<size_t>(n)] < 0; }

  void make_ready(int32_t n) {
    ready_.push(n);
    if (node(n).op->transfer.starts_early) transfer_ = n;
  }

  void emit(int32_t n) {
    if (n == transfer_) transfer_ = -1;
    missing_[static_cast<size_t>(n)] = -1;
    order_.push_back(n);
    while (!ready_.empty() && is_emitted(ready_.top())) ready_.pop();
    for (const Value& v : node(n).inputs) {
      const auto it = unread_.find(v.buffer);
      if (it == unread_.end()) continue;
      under_way_ -= it->second;
      unread_.erase(it);
    }
    if (node(n).op->transfer.starts_early) {
      for (const Value& v : node(n).outputs) {
        const int64_t bytes = numel_of(v.sizes) * itemsize(v.dtype);
        unread_[v.buffer] = bytes;
        under_way_ += bytes;
      }
    }
    for (const int32_t next : after_[static_cast<size_t>(n)]) {
      if (--missing_[static_cast<size_t>(next)] == 0) make_ready(next);
    }
  }

  Graph& graph_;
  const int64_t limit_;
  std::vector<std::vector<int32_t>> after_;
  std::vector<int32_t> missing_;  // per node: what must come before it and has not; -1: it has come itself
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> ready_;  // program order
  int32_t transfer_ = -1;                                                     // that is ready
  std::map<int32_t, int64_t> unread_;  // buffers that started calls write: their bytes
  int64_t under_way_ = 0;
  std::vector<int32_t> order_;
};

}  // namespace

void schedule_collectives(PassState& state) {
  const std::vector<Node>& nodes = state.graph.nodes;
  if (std::none_of(nodes.begin(), nodes.end(), [](const Node& node) { return node.op->transfer.starts_early; })) return;
  state.statistics.started_early = Scheduler(state.graph, state.options.collectives.under_way_bytes).run();
}

}  // namespace tutti::graph
