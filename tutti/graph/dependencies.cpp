#include "tutti/graph/dependencies.h"

#include <algorithm>

namespace tutti::graph {

std::vector<std::vector<int32_t>> dependencies_of(const Graph& graph) {
  std::vector<int32_t> writer(graph.buffers.size(), -1);        // of the newest version
  std::vector<std::vector<int32_t>> readers(graph.buffers.size());  // of the newest version
  std::vector<std::vector<int32_t>> before(graph.nodes.size());
  int32_t last_ordered = -1, last_check = -1;
  std::vector<int32_t> outside_writes;  // to given memory, since the last check
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
      if (graph.buffers[b].kind == Buffer::Kind::given) {
        if (last_check >= 0) mine.push_back(last_check);
        outside_writes.push_back(static_cast<int32_t>(n));
      }
      writer[b] = static_cast<int32_t>(n);
      readers[b].clear();
    }
    if (is_ordered(node)) {
      if (last_ordered >= 0) mine.push_back(last_ordered);
      last_ordered = static_cast<int32_t>(n);
      if (node.control) {
        last_check = last_ordered;
        mine.insert(mine.end(), outside_writes.begin(), outside_writes.end());
        outside_writes.clear();
      }
    }
    std::sort(mine.begin(), mine.end());
    mine.erase(std::unique(mine.begin(), mine.end()), mine.end());
    std::erase(mine, static_cast<int32_t>(n));
  }
  return before;
}

}  // namespace tutti::graph
