// Pass: small collectives that follow each other become one call.
#pragma once

#include "tutti/graph/graph.h"

namespace tutti::graph {

// Afterwards neighbours among the ordered nodes that are one op with equal attrs, dtype and device, do not read what another of
// them gives, also through others, and have results of at most `bucket_bytes` together, are one call of
// OpDef::transfer.coalesced. Results of the graph and buffers that are written in place keep calls of their own. Chosen from the
// order of the program and from what depends on what: ranks agree when their collectives depend on each other alike.
// Returns how many calls went into another one.
int64_t bucket_collectives(Graph& graph, int64_t bucket_bytes);

}  // namespace tutti::graph
