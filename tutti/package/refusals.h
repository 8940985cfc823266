// What packages do not hold.
#pragma once

#include <string>
#include <vector>

#include "tutti/deploy/rank_group.h"
#include "tutti/plan/graph.h"

namespace tutti::package_detail {

// Throws UsageError, naming the op, its line and why, unless the graph does only what packages hold. may_write: per
// source of given buffers. groups: in which the function may communicate.
void refuse_what_does_not_fit(const graph::Graph& graph, const std::vector<bool>& may_write,
                              const deploy::BoundGroups& groups, const std::string& function);

}  // namespace tutti::package_detail
