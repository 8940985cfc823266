// Pass: dead code elimination.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// Removes nodes except those that compute a result, write given memory, can fail, communicate with other ranks, or
// compute what such a node reads. Returns how many were removed.
int64_t remove_unused(Graph& graph);

}  // namespace tutti::graph
