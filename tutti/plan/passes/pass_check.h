// Legality of what a pass leaves behind. For tests and for TUTTI_CHECK_PASSES=1 (pipeline.h); that of a graph is
// check() in plan/graph.h.
#pragma once

#include <span>

#include "tutti/plan/step.h"

namespace tutti::graph {

// InternalError unless every node is in one group, and runs after the nodes that it depends on (dependencies.h),
// whether these are in an earlier group or earlier in its own.
void check_groups(const Graph& graph, std::span<const Group> groups);

// InternalError unless
//   - every node is in one step, and runs after the nodes that it depends on. A kernel without a step is legal when
//     nothing reads what its nodes would write, and none of them can fail;
//   - each step reads the versions that earlier steps or the caller wrote last, and bytes that they reached;
//   - kernels of a batch, which run at once, touch no memory that another of them writes, and none of them writes
//   memory
//     of the caller behind one that can fail.
void check_steps(const Graph& graph, std::span<const Step> steps);

}  // namespace tutti::graph
