#include "tutti/plan/passes/remove_unused.h"

#include <algorithm>

#include "tutti/plan/failure.h"
#include "tutti/plan/passes/pass_state.h"

namespace tutti::graph {

int64_t remove_unused(Graph& graph) {
  std::vector<bool> read(graph.buffers.size(), false);  // by what comes later, or by the caller
  for (size_t b = 0; b < graph.buffers.size(); ++b) read[b] = graph.buffers[b].kind == Buffer::Kind::given;
  for (const Value& v : graph.results) {
    if (v.buffer >= 0) read[static_cast<size_t>(v.buffer)] = true;
  }
  const size_t before = graph.nodes.size();
  std::vector<Node> kept;
  for (size_t n = before; n-- > 0;) {
    Node& node = graph.nodes[n];
    const bool wanted = can_fail(node) || std::any_of(node.outputs.begin(), node.outputs.end(), [&](const Value& v) {
                          return read[static_cast<size_t>(v.buffer)];
                        });
    if (!wanted) continue;
    for (const Value& v : node.inputs) read[static_cast<size_t>(v.buffer)] = true;
    kept.push_back(std::move(node));
  }
  std::reverse(kept.begin(), kept.end());
  // Versions stay numbered as they were written: a left-out write of a made buffer leaves out the buffer's later ones
  // too.
  graph.nodes = std::move(kept);
  return static_cast<int64_t>(before - graph.nodes.size());
}

void remove_unused(PassState& state) { state.statistics.unused += remove_unused(state.graph); }

}  // namespace tutti::graph
