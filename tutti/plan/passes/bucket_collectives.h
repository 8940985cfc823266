// Pass: adjacent small collectives are merged into one call.
#pragma once

namespace tutti::graph {

struct PassState;

// Afterwards, adjacent ordered nodes of one op with equal attrs, dtype and device that do not depend on each other,
// directly or indirectly, and whose results take at most CollectiveOptions::bucket_bytes together, are one call of
// OpDef::transfer.coalesced. Calls whose results are results of the graph or are written in place are not merged. The
// choice depends only on program order and dependencies, so ranks agree if the dependencies between their collectives
// are the same.
void bucket_collectives(PassState& state);

}  // namespace tutti::graph
