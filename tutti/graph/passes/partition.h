// Pass: what the backward reads of the forward is kept for it, or computed again by it.
#pragma once

#include <optional>
#include <span>

#include "tutti/graph/graph.h"

namespace tutti::graph {

struct PartitionOptions {
  // Of the memory between the least that can be kept and what costs no time worth speaking of.
  //   1: kept is the least from which cheap ops inside the backward's kernels get the rest (minimum cut by bytes);
  //   0: the least that can be kept: products and attention are computed again, too;
  //   between: of the costly ops, those are computed again that free most bytes for their work, until it fits.
  double activation_memory_budget = 1.0;
};

// Which nodes of a graph are the backward.
struct BackwardPart {
  std::optional<size_t> first_node = {};  // all from here on; nothing: those whose phase is backward
  std::span<const Value> results = {};    // of it
  // The backward runs in a later call. It may read of the given memory what it reads anyway and no more: the caller may
  // write to the rest meanwhile.
  bool runs_later = false;
};

struct PartitionStatistics {
  int64_t read_bytes = 0;  // made by the forward and read by the backward, as traced
  int64_t kept_bytes = 0;  // kept for it
  int64_t recomputed = 0;  // nodes that run again
};

// Afterwards the backward reads of the forward only what is worth keeping. A node that runs again has the same op, attrs and
// operands, so the same bits; it runs after what its first reader in the backward waits for. Never again: ops with
// effects, ordered ones, those that read what is written later, and by OpDef::recompute.
PartitionStatistics partition(Graph& graph, const PartitionOptions& options, const BackwardPart& backward = {});

}  // namespace tutti::graph
