// How linear cross entropy is cut into chunks of rows and classes, within the bytes that its caller grants.
#pragma once

#include <string>
#include <vector>

#include "tutti/ops/chunked_loss/call.h"
#include "tutti/ops/engine/tree_parts.h"

namespace tutti::chunked_loss {

struct ChunkPlan {
  std::vector<TreePart> rows, classes;
  int64_t nbytes = 0;  // of chunks and sums that wait, at once

  int64_t chunk_rows() const { return rows.front().count; }
  int64_t chunk_classes() const { return classes.front().count; }
  std::string describe() const;  // for traces
};

// Statistics that wait inside a chunk of so many classes: those of its leaves, with mix.
int slots_of_leaves(const OpCall& call, int64_t classes);

// Logits chunk by chunk and the statistics of their rows. BoundError, naming the bytes, when no chunk is small enough.
ChunkPlan plan_statistics(const OpCall& call);

// The gradients that the attrs need. Those of weight and bias sum over rows, that of x sums over classes: classes
// outside and rows inside keeps the former in one chunk of classes, but all rows of the latter wait; the other way
// round it is the rows of one chunk. Together the logits are computed once more, apart twice.
struct GradientPlan {
  ChunkPlan classes_outside;  // weight and bias, and x when together; empty when neither is needed
  ChunkPlan rows_outside;     // x; empty when it is not needed, or together with the others
  bool together = false;
};
GradientPlan plan_gradients(const OpCall& call);

// Statistics and the gradients that the attrs need in one pass over chunks of rows, each with all classes. Sums over
// rows wait for all classes.
ChunkPlan plan_in_forward(const OpCall& call);

// OpDef::room of the ops that keep to max_bytes: what they take is granted, and whoever grants it counts it, so nothing
// is left to count here. The errors of the plans of a call, on fake tensors as with real ones.
int64_t room_within_bound(const OpCall& call, int64_t threads);

}  // namespace tutti::chunked_loss
