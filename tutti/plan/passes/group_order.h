// Ordering of groups.
#pragma once

#include "tutti/plan/passes/fuse.h"

namespace tutti::graph {

// Orders the groups by the position of their last node, as far as dependencies allow. before: the result of
// dependencies_of(). The groups must contain every node once and must not depend on each other cyclically.
std::vector<Group> in_order(const Graph& graph, const std::vector<std::vector<int32_t>>& before,
                            std::vector<Group> groups);

}  // namespace tutti::graph
