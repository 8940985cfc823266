// Where the kernels of a compiled graph come from: for traces.
#pragma once

#include "tutti/plan/block_step.h"

namespace tutti::graph {

// Puts the user's line of each node in front of the lines of its modules.
void name_lines(Graph& graph);

// `name` and a hash of the graph, equal for equal graphs. Lives as long as the process.
const char* graph_key_of(const Graph& graph, const std::string& name);

// The facts about `step`, which was made of `group`: its ops with their nodes, the source lines and the module that
// they share, phase, work of one run.
const TraceKernel& provenance_of(const KernelStep& step, const Group& group, const Graph& graph, const char* graph_key);
// The facts about several kernels that are one launch, from their own.
const TraceKernel& provenance_of(std::span<const KernelStep> kernels, const char* graph_key);

// The facts about a call with a prologue, an epilogue or both: its op, then those of the kernels.
const TraceKernel& provenance_of(const std::optional<BlockStep>& prologue, const std::optional<BlockStep>& epilogue,
                                 const Group& call, const Graph& graph, const char* graph_key);

}  // namespace tutti::graph
