// Pass: dead code elimination.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

struct PassState;

// Removes nodes except those that compute a result, write given memory, can fail, communicate with other ranks, or
// compute what such a node reads.
void remove_unused(PassState& state);
// The same for a graph outside of the pipeline, such as a branch that is traced. Returns how many nodes were removed.
int64_t remove_unused(Graph& graph);

}  // namespace tutti::graph
