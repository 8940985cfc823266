// Pass: collectives start as soon as they can.
#pragma once

namespace tutti::graph {

struct PassState;

// Afterwards, a call with OpDef::transfer.starts_early is right after the last node that it depends on, as long as the
// results of started calls that have not been read yet take at most CollectiveOptions::under_way_bytes; otherwise it
// stays in place. Ordered nodes keep their relative order, so ranks agree whatever else their graphs contain.
void schedule_collectives(PassState& state);

}  // namespace tutti::graph
