// Whether a node is cheaper inside a kernel than in one of its own.
//
// A kernel over rows walks along a row once for each of its reductions that needs another one, and once for its
// outputs. Each walk computes again, from operands in memory and results of reductions, what it needs. So a node that
// joins saves memory that is written and read, and may repeat arithmetic.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tutti/plan/passes/fuse.h"
#include "tutti/plan/recipe_cost.h"

namespace tutti::graph {

class FuseCost {
 public:
  // spaces: of all nodes, as far as they have one; grows while nodes are placed. Both must outlive this.
  FuseCost(const Graph& graph, const std::vector<std::optional<NodeSpace>>& spaces);

  // Whether a kernel of `members` and node `n`, over `space`, which has rows, costs at most what a kernel of `members`
  // and one of `n` do.
  bool pays(std::span<const int32_t> members, int32_t n, const Space& space);

 private:
  // What an element of the space costs in a kernel of the nodes, in additions; without memory.
  double work_of(std::span<const int32_t> members, const Space& space);
  const RecipeCost& cost_of(int32_t n);
  bool is_read_outside(int32_t n, std::span<const int32_t> members) const;

  const Graph& graph_;
  const std::vector<std::optional<NodeSpace>>& spaces_;
  std::vector<std::optional<RecipeCost>> costs_;
  std::map<std::pair<int32_t, int32_t>, std::vector<int32_t>> readers_;  // of a version; -1: a result
};

}  // namespace tutti::graph
