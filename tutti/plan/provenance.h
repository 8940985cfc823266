// Where the kernels of a compiled graph come from: for traces.
#pragma once

#include "tutti/plan/block_step.h"

namespace tutti::graph {

struct PassState;

// Pass: names the graph in traces, by its function and a hash, equal for equal graphs, and puts the user's line of each
// node in front of the lines of its modules. It stands behind what changes the graph.
void name_lines(PassState& state);

// The facts about `step`, which was made of `group`: its ops with their nodes, the source lines and the module that
// they share, phase, work of one run.
const TraceKernel& provenance_of(const KernelStep& step, const Group& group, const Graph& graph, const char* graph_key);
// The facts about several kernels that are one launch, from their own.
const TraceKernel& provenance_of(std::span<const KernelStep> kernels, const char* graph_key);

// The facts about a call with a prologue, an epilogue or both: its op, then those of the kernels.
const TraceKernel& provenance_of(const std::optional<BlockStep>& prologue, const std::optional<BlockStep>& epilogue,
                                 const Group& call, const Graph& graph, const char* graph_key);

}  // namespace tutti::graph
