// Pass: adjacent small collectives are merged into one call.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// Afterwards, adjacent ordered nodes of one op with equal attrs, dtype and device that do not depend on each other,
// directly or indirectly, and whose results take at most `bucket_bytes` together, are one call of
// OpDef::transfer.coalesced. Calls whose results are results of the graph or are written in place are not merged. The
// choice depends only on program order and dependencies, so ranks agree if the dependencies between their collectives
// are the same. Returns how many calls were merged into another one.
int64_t bucket_collectives(Graph& graph, int64_t bucket_bytes);

}  // namespace tutti::graph
