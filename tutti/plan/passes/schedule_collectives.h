// Pass: collectives start as soon as they can.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// Afterwards, a call with OpDef::transfer.starts_early is right after the last node that it depends on, as long as the
// results of started calls that have not been read yet take at most `under_way_bytes`; otherwise it stays in place.
// Ordered nodes keep their relative order, so ranks agree whatever else their graphs contain. Returns how many calls
// were moved.
int64_t schedule_collectives(Graph& graph, int64_t under_way_bytes);

}  // namespace tutti::graph
