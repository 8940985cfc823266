// Pass: collectives are joined with the matrix products next to them.
#pragma once

namespace tutti::graph {

struct PassState;

// Afterwards, a call with OpDef::transfer.with_readers and calls that read its result as input 0 are one call of that
// op, as many of them as it takes and as need nothing that comes later; and a call with OpDef::transfer.with_producer
// and the call that makes its input are one, where nobody else reads that. Ordered nodes keep their order, so that
// ranks with equal graphs agree.
void join_products(PassState& state);

}  // namespace tutti::graph
