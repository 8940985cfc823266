#include "tutti/plan/dependencies.h"

#include <algorithm>
#include <set>

#include "tutti/plan/failure.h"

namespace tutti::graph {
namespace {

// Rules 3 and 4.
class FailureOrder {
 public:
  explicit FailureOrder(const Graph& graph) : graph_(graph) {}

  // Adds to `before` what node n must come after. To be asked node by node.
  void add(int32_t n, std::vector<int32_t>& before) {
    const Node& node = graph_.nodes[static_cast<size_t>(n)];
    const bool writes = writes_given(node, graph_), starts_early = node.op->transfer.starts_early;
    const bool fails = can_fail(node) && !starts_early, throws = (runs_by_itself(node) && !starts_early) || waits(node);
    if (fails) {
      add_all(before, {last_failing_});
      add_all(before, writes_);
    }
    if (writes) {
      add_all(before, {last_failing_, last_early_});
      add_all(before, throwing_);
    }
    if (throws) add_all(before, writes_);
    note(n, writes, fails, throws);
    if (starts_early) last_early_ = n;
    if (is_ordered(node)) {
      for (const Value& v : node.outputs) under_way_.insert(v.buffer);
    }
  }

 private:
  static void add_all(std::vector<int32_t>& before, const std::vector<int32_t>& nodes) {
    std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(before), [](int32_t n) { return n >= 0; });
  }

  bool waits(const Node& node) {
    const auto ends = [&](const Value& v) { return under_way_.erase(v.buffer) > 0; };
    return std::count_if(node.inputs.begin(), node.inputs.end(), ends) > 0;
  }

  // Writes come in runs, and so does what may throw: who follows a run of the one kind follows, through it, what was
  // before it.
  void note(int32_t n, bool writes, bool fails, bool throws) {
    if (writes && throws) {
      writes_ = throwing_ = {n};
    } else if (writes) {
      if (!in_writes_) writes_.clear();
      writes_.push_back(n);
    } else if (throws) {
      if (in_writes_) throwing_.clear();
      throwing_.push_back(n);
    }
    if (writes || throws) in_writes_ = writes;
    if (fails) last_failing_ = n;
  }

  const Graph& graph_;
  int32_t last_failing_ = -1, last_early_ = -1;
  std::vector<int32_t> writes_, throwing_;  // the last run of each kind
  bool in_writes_ = false;                  // the newest run is one of writes
  std::set<int32_t> under_way_;             // buffers that nobody has waited for
};

}  // namespace

std::vector<std::vector<int32_t>> dependencies_of(const Graph& graph) {
  std::vector<int32_t> writer(graph.buffers.size(), -1);            // of the newest version
  std::vector<std::vector<int32_t>> readers(graph.buffers.size());  // of the newest version
  std::vector<std::vector<int32_t>> before(graph.nodes.size());
  FailureOrder failures(graph);
  int32_t last_ordered = -1;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<int32_t>& mine = before[n];
    for (const Value& v : node.inputs) {
      const auto b = static_cast<size_t>(v.buffer);
      if (writer[b] >= 0) mine.push_back(writer[b]);
      readers[b].push_back(static_cast<int32_t>(n));
    }
    for (const Value& v : node.after) {
      if (writer[static_cast<size_t>(v.buffer)] >= 0) mine.push_back(writer[static_cast<size_t>(v.buffer)]);
    }
    for (const Value& v : node.outputs) {
      const auto b = static_cast<size_t>(v.buffer);
      if (writer[b] >= 0) mine.push_back(writer[b]);
      mine.insert(mine.end(), readers[b].begin(), readers[b].end());
      writer[b] = static_cast<int32_t>(n);
      readers[b].clear();
    }
    if (is_ordered(node)) {
      if (last_ordered >= 0) mine.push_back(last_ordered);
      last_ordered = static_cast<int32_t>(n);
    }
    failures.add(static_cast<int32_t>(n), mine);
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
    std::erase(mine, static_cast<int32_t>(n));
  }
  return before;
}

}  // namespace tutti::graph
