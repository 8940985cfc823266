// Pass: collectives are joined with the matrix products next to them.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// Afterwards, a call with OpDef::transfer.with_readers and calls that read its result as input 0 are one call of that
// op, as many of them as it takes and as need nothing that comes later; and a call with OpDef::transfer.with_producer
// and the call that makes its input are one, where nobody else reads that. Ordered nodes keep their order, so that
// ranks with equal graphs agree. Returns how many calls were joined with another one.
int64_t join_products(Graph& graph);

}  // namespace tutti::graph
