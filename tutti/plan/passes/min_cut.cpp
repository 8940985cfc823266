#include "tutti/plan/passes/min_cut.h"

#include <algorithm>
#include <limits>

namespace tutti::graph {
namespace {

constexpr int64_t kUncuttable = std::numeric_limits<int64_t>::max() / 4;
constexpr int32_t kSource = 0, kSink = 1;

// A vertex is an edge from the point where it is entered to the point where it is left.
int32_t entry_of(size_t vertex) { return static_cast<int32_t>(2 + 2 * vertex); }
int32_t exit_of(size_t vertex) { return entry_of(vertex) + 1; }

}  // namespace

MinCut::MinCut(size_t vertices) : out_(2 + 2 * vertices) {
  for (size_t v = 0; v < vertices; ++v) connect(entry_of(v), exit_of(v), 0);
}

void MinCut::connect(int32_t from, int32_t to, int64_t room) {
  out_[static_cast<size_t>(from)].push_back(static_cast<int32_t>(edges_.size()));
  edges_.push_back({to, room});
  out_[static_cast<size_t>(to)].push_back(static_cast<int32_t>(edges_.size()));
  edges_.push_back({from, 0});
}

void MinCut::set_cost(size_t vertex, int64_t cost) { edges_[2 * vertex].room = cost; }
void MinCut::add_edge(size_t from, size_t to) { connect(exit_of(from), entry_of(to), kUncuttable); }
void MinCut::add_source(size_t vertex) { connect(kSource, entry_of(vertex), kUncuttable); }
void MinCut::add_sink(size_t vertex) { connect(exit_of(vertex), kSink, kUncuttable); }

// Steps from the source along edges with room; false when they do not lead to the sink.
bool MinCut::find_levels() {
  level_.assign(out_.size(), -1);
  std::vector<int32_t> queue{kSource};
  level_[kSource] = 0;
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const int32_t e : out_[static_cast<size_t>(queue[i])]) {
      const Edge& edge = edges_[static_cast<size_t>(e)];
      int32_t& level = level_[static_cast<size_t>(edge.to)];
      if (edge.room == 0 || level >= 0) continue;
      level = level_[static_cast<size_t>(queue[i])] + 1;
      queue.push_back(edge.to);
    }
  }
  return level_[kSink] >= 0;
}

int64_t MinCut::push(int32_t from, int64_t flow) {
  if (from == kSink) return flow;
  const auto f = static_cast<size_t>(from);
  for (size_t& i = next_[f]; i < out_[f].size(); ++i) {
    const auto e = static_cast<size_t>(out_[f][i]);
    if (edges_[e].room == 0 || level_[static_cast<size_t>(edges_[e].to)] != level_[f] + 1) continue;
    const int64_t pushed = push(edges_[e].to, std::min(flow, edges_[e].room));
    if (pushed == 0) continue;
    edges_[e].room -= pushed;
    edges_[e ^ 1].room += pushed;
    return pushed;
  }
  return 0;
}

// The largest flow fills the cheapest cut. Source: Dinic 1970.
std::vector<MinCut::Side> MinCut::run() {
  cost_ = 0;
  while (find_levels()) {
    next_.assign(out_.size(), 0);
    while (const int64_t pushed = push(kSource, kUncuttable)) cost_ += pushed;
  }
  std::vector<bool> reaches_sink(out_.size(), false);
  std::vector<int32_t> queue{kSink};
  reaches_sink[kSink] = true;
  for (size_t i = 0; i < queue.size(); ++i) {
    for (const int32_t e : out_[static_cast<size_t>(queue[i])]) {
      const Edge& back = edges_[static_cast<size_t>(e)];
      const auto from = static_cast<size_t>(back.to);
      if (edges_[static_cast<size_t>(e ^ 1)].room == 0 || reaches_sink[from]) continue;
      reaches_sink[from] = true;
      queue.push_back(back.to);
    }
  }
  std::vector<Side> sides;
  for (size_t v = 0; 2 + 2 * v < out_.size(); ++v) {
    const bool in = reaches_sink[static_cast<size_t>(entry_of(v))], out = reaches_sink[static_cast<size_t>(exit_of(v))];
    sides.push_back(in ? Side::sink : out ? Side::cut : Side::source);
  }
  return sides;
}

}  // namespace tutti::graph
