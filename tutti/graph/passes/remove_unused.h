// Pass: leaves out nodes whose outputs nobody reads.
#pragma once

#include "tutti/graph/graph.h"

namespace tutti::graph {

// Nodes stay that give a result, write given memory, can fail, talk to other ranks, or give what such a node reads. Returns
// how many were left out.
int64_t remove_unused(Graph& graph);

}  // namespace tutti::graph
