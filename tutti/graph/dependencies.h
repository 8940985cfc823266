// Which nodes must run before which.
#pragma once

#include <vector>

#include "tutti/graph/graph.h"

namespace tutti::graph {

// Per node, the nodes it must come after, ascending: those that wrote what it reads, those that read what it overwrites,
// and for an ordered op the ordered op before it.
std::vector<std::vector<int32_t>> dependencies_of(const Graph& graph);

}  // namespace tutti::graph
