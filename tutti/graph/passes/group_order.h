// The order in which groups run.
#pragma once

#include "tutti/graph/passes/fuse.h"

namespace tutti::graph {

// By the place of their last node, as far as what they need allows. before: as dependencies_of() gives it; the groups hold
// every node once and do not wait for each other in a circle.
std::vector<Group> in_order(const Graph& graph, const std::vector<std::vector<int32_t>>& before, std::vector<Group> groups);

}  // namespace tutti::graph
