// Which nodes must run before which.
#pragma once

#include <vector>

#include "tutti/graph/graph.h"

namespace tutti::graph {

// Per node, the nodes it must come after, ascending.
//
//   1. What it reads is there and what it overwrites has been read; those of Node::after have run.
//   2. Ordered ops follow each other.
//   3. Nodes that can fail follow each other, so that the first that would fail does.
//   4. A write to memory of the caller comes after what can fail before it, and before what can fail behind it. Code that is
//      called may throw though no facet says so, and whoever first reads what a collective gives waits for it: both count here.
//
// A collective that may start early does so: rules 3 and 4 hold it back from nothing. What it fails with comes before the
// writes behind it all the same.
std::vector<std::vector<int32_t>> dependencies_of(const Graph& graph);

}  // namespace tutti::graph
