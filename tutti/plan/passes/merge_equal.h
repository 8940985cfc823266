// Pass: common subexpression elimination.
#pragma once

namespace tutti::graph {

struct PassState;

// Merges nodes with equal op, attrs, inputs and Node::after that have no effects, whose outputs are not written later,
// and that are in the same checkpoint region, so that what is recomputed to save memory stays recomputed.
void merge_equal(PassState& state);

}  // namespace tutti::graph
