// Pass: common subexpression elimination.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// Merges nodes with equal op, attrs, inputs and Node::after that have no effects, whose outputs are not written later,
// and that are in the same checkpoint region, so that what is recomputed to save memory stays recomputed. Returns how
// many nodes were merged into earlier ones.
int64_t merge_equal(Graph& graph);

}  // namespace tutti::graph
