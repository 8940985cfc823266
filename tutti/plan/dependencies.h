// Dependencies between nodes.
#pragma once

#include <vector>

#include "tutti/plan/graph.h"

namespace tutti::graph {

// For each node, the nodes that must run before it, in ascending order.
//
//   1. Values it reads must be written, values it overwrites must have been read, and values in Node::after must be
//   complete.
//   2. Ordered ops keep their order.
//   3. Nodes that can fail keep their order, so that the same error is reported as in program order.
//   4. A write to memory of the caller comes after nodes before it that can fail, and before nodes after it that can
//   fail. Here
//      this includes ops called through code, which may throw without declaring it, and the first reader of a
//      collective's result, which waits for the collective.
//
// Rules 3 and 4 do not delay a collective that may start early. Its error is nevertheless reported before the writes
// that follow it in the program.
std::vector<std::vector<int32_t>> dependencies_of(const Graph& graph);

}  // namespace tutti::graph
