// Pass: collectives start as soon as they can.
#pragma once

#include "tutti/graph/graph.h"

namespace tutti::graph {

// Afterwards a call whose OpDef::transfer.starts_early stands right behind the last node that it needs, as long as the results of
// started calls that nobody has read yet take at most `under_way_bytes`; else where it stood. Ordered nodes keep their
// order among themselves, so ranks agree whatever else their graphs do. Returns how many calls moved.
int64_t schedule_collectives(Graph& graph, int64_t under_way_bytes);

}  // namespace tutti::graph
