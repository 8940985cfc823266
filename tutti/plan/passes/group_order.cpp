#include "tutti/plan/passes/group_order.h"

#include <algorithm>
#include <queue>

namespace tutti::graph {

std::vector<Group> in_order(const Graph& graph, const std::vector<std::vector<int32_t>>& before,
                            std::vector<Group> groups) {
  std::vector<int32_t> group_of(graph.nodes.size(), -1), last(groups.size(), -1);
  for (size_t g = 0; g < groups.size(); ++g) {
    for_each_node(groups[g], [&](int32_t n) {
      group_of[static_cast<size_t>(n)] = static_cast<int32_t>(g);
      last[g] = std::max(last[g], n);
    });
  }
  std::vector<std::vector<int32_t>> after(groups.size());
  std::vector<int32_t> missing(groups.size(), 0);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const int32_t p : before[n]) {
      const int32_t from = group_of[static_cast<size_t>(p)], to = group_of[n];
      if (from == to) continue;
      after[static_cast<size_t>(from)].push_back(to);
      ++missing[static_cast<size_t>(to)];
    }
  }
  using Item = std::pair<int32_t, int32_t>;  // last node, group
  std::priority_queue<Item, std::vector<Item>, std::greater<>> ready;
  const auto push = [&](int32_t g) { ready.push({last[static_cast<size_t>(g)], g}); };
  for (size_t g = 0; g < groups.size(); ++g) {
    if (missing[g] == 0) push(static_cast<int32_t>(g));
  }
  std::vector<Group> order;
  while (!ready.empty()) {
    const int32_t g = ready.top().second;
    ready.pop();
    for (const int32_t h : after[static_cast<size_t>(g)]) {
      if (--missing[static_cast<size_t>(h)] == 0) push(h);
    }
    order.push_back(std::move(groups[static_cast<size_t>(g)]));
  }
  TUTTI_ASSERT(order.size() == groups.size(), "{} of {} groups wait for each other", groups.size() - order.size(),
               groups.size());
  return order;
}

}  // namespace tutti::graph
