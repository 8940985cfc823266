// Pass: neighbouring kernels become one launch.
#pragma once

#include <vector>

#include "tutti/graph/executable.h"

namespace tutti::graph {

// Afterwards kernels that follow each other, touch no memory that another of them writes, and are small or write given memory
// only, are one BatchStep, in which none writes given memory behind one that can fail; the order of all else is kept. A kernel that reads what a collective may still write begins a batch
// of its own: the ones before it need not wait. (Large temporaries stay apart because a batch keeps those of all its kernels.)
std::vector<Step> batch(std::vector<Step> steps, const Graph& graph, const char* graph_key);

}  // namespace tutti::graph
