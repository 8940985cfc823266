// Pass: nodes that compute the same become one.
#pragma once

#include "tutti/graph/graph.h"

namespace tutti::graph {

// Equal op, attrs, inputs and Node::after, no effects, outputs that nobody writes later, and the same checkpointed region: what is
// recomputed to save memory stays recomputed. Returns how many nodes were merged into earlier ones.
int64_t merge_equal(Graph& graph);

}  // namespace tutti::graph
