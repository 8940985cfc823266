// Pass: decides which results of the forward are kept for the backward and which are recomputed.
#pragma once

#include <optional>
#include <span>

#include "tutti/plan/graph.h"

namespace tutti::graph {

struct PassState;

struct PartitionOptions {
  // How much memory may be kept, between the two extremes:
  //   1: recompute only what is nearly free. Kept are the fewest bytes from which cheap ops fused into the backward's
  //   kernels
  //      can recompute the rest (a minimum cut);
  //   0: recompute as much as possible, including matrix products and attention;
  //   between: of the costly ops, those that free the most bytes for their work are recomputed until the budget is met.
  // Where forward and backward run in one call, the budget counts in eighths, rounded down, and more is kept if less
  // recomputation takes less memory in all.
  double activation_memory_budget = 1.0;
};

// Which nodes of a graph are the backward.
struct BackwardPart {
  std::optional<size_t> first_node = {};  // all nodes from here on; not set: those whose phase is backward
  std::span<const Value> results = {};    // the results of the backward
  // The backward runs in a later call. Recomputation must then not read given memory that the backward does not read
  // anyway, because the caller may write to it in between.
  bool runs_later = false;
};

struct PartitionStatistics {
  int64_t read_bytes = 0;  // bytes computed by the forward that the backward reads, as traced
  int64_t kept_bytes = 0;  // bytes kept for the backward
  int64_t recomputed = 0;  // nodes that are recomputed
};

// Afterwards the backward reads only those results of the forward that are kept. A recomputed node has the same op,
// attrs and operands, hence the same bits; it runs after the nodes that its first reader in the backward waits for.
// Never recomputed are ops with effects, ordered ops, ops that read memory written later, and ops that OpDef::recompute
// excludes.
void partition(PassState& state);
// The same for the joint graph of a forward and a backward that become separate executables (graph/joint.h).
PartitionStatistics partition(Graph& graph, const PartitionOptions& options, const BackwardPart& backward);

}  // namespace tutti::graph
