#include "tutti/plan/passes/live_peak.h"

#include <algorithm>
#include <vector>

#include "tutti/plan/passes/fuse.h"

namespace tutti::graph {
namespace {

struct Life {
  int64_t first = -1, last = -1;  // nodes
  int64_t readers = 0;
  bool is_pointwise = false;
};

}  // namespace

int64_t live_peak(const Graph& graph) {
  std::vector<Life> lives(graph.buffers.size());
  const auto count = std::ssize(graph.nodes);
  for (int64_t n = 0; n < count; ++n) {
    const Node& node = graph.nodes[static_cast<size_t>(n)];
    for (const Value& v : node.inputs) {
      Life& life = lives[static_cast<size_t>(v.buffer)];
      life.last = n;
      ++life.readers;
    }
    for (const Value& v : node.outputs) {
      Life& life = lives[static_cast<size_t>(v.buffer)];
      if (life.first < 0) {
        life.first = n;
        life.is_pointwise = has_kernel_recipe(*node.op) && node.op->recipe.kind == codegen::LoopKind::pointwise;
      }
      life.last = n;
    }
  }
  for (const Value& v : graph.results) {
    if (v.buffer < 0) continue;
    lives[static_cast<size_t>(v.buffer)].last = count;
    ++lives[static_cast<size_t>(v.buffer)].readers;
  }
  std::vector<int64_t> change(static_cast<size_t>(count) + 2, 0);
  for (size_t b = 0; b < lives.size(); ++b) {
    const Life& life = lives[b];
    if (graph.buffers[b].kind != Buffer::Kind::made || life.first < 0 || (life.is_pointwise && life.readers <= 1))
      continue;
    change[static_cast<size_t>(life.first)] += graph.buffers[b].nbytes;
    change[static_cast<size_t>(life.last) + 1] -= graph.buffers[b].nbytes;
  }
  int64_t now = 0, peak = 0;
  for (const int64_t bytes : change) {
    now += bytes;
    peak = std::max(peak, now);
  }
  return peak;
}

}  // namespace tutti::graph
