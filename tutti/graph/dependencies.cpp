#include "tutti/graph/dependencies.h"

#include <algorithm>

namespace tutti::graph {

std::vector<std::vector<int32_t>> dependencies_of(const Graph& graph) {
  std::vector<int32_t> writer(graph.buffers.size(), -1);        // of the newest version
  std::vector<std::vector<int32_t>> readers(graph.buffers.size());  // of the newest version
  std::vector<std::vector<int32_t>> before(graph.nodes.size());
  int32_t last_ordered = -1;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    std::vector<int32_t>& mine = before[n];
    for (const Value& v : node.inputs) {
      const auto b = static_cast<size_t>(v.buffer);
      if (writer[b] >= 0) mine.push_back(writer[b]);
      readers[b].push_back(static_cast<int32_t>(n));
    }
    for (const Value& v : node.outputs) {
      const auto b = static_cast<size_t>(v.buffer);
      if (writer[b] >= 0) mine.push_back(writer[b]);
      mine.insert(mine.end(), readers[b].begin(), readers[b].end());
      writer[b] = static_cast<int32_t>(n);
      readers[b].clear();
    }
    if (node.op->ordered) {
      if (last_ordered >= 0) mine.push_back(last_ordered);
      last_ordered = static_cast<int32_t>(n);
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
    std::erase(mine, static_cast<int32_t>(n));
  }
  return before;
}

}  // namespace tutti::graph
