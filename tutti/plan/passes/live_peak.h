// The memory that a graph needs when its nodes run in their order.
#pragma once

#include "tutti/plan/graph.h"

namespace tutti::graph {

// The most bytes of made buffers that are in use at one time, as traced. An estimate: values of pointwise nodes with
// one reader count as none, because kernels keep them in registers.
int64_t live_peak(const Graph& graph);

}  // namespace tutti::graph
