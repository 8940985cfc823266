// Which nodes must run before which.
#pragma once

#include <vector>

#include "tutti/graph/graph.h"

namespace tutti::graph {

// Per node, the nodes it must come after, ascending: those that wrote what it reads, those that read what it overwrites,
// those of Node::after, for an ordered op the ordered op before it. Run-time checks also part the writes to memory of the caller: when one fails,
// those before it have happened and those after it have not, as in an eager run.
std::vector<std::vector<int32_t>> dependencies_of(const Graph& graph);

}  // namespace tutti::graph
