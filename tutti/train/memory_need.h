// The minimum memory of a run, so that impossible sizes are reported before anything is allocated.
#pragma once

#include <cstdint>

#include "tutti/train/config.h"

namespace tutti::train {

// The memory of one rank in bytes: weights, one set of gradients, the state of the optimizer, and for one virtual shard the
// logits, their gradient and the input of each block. It is a lower bound; docs/memory.md describes what a step really takes.
struct MemoryNeed {
  int64_t parameters = 0;  // weights, gradients and optimizer state, in bytes
  int64_t shard = 0;       // one virtual shard, in bytes
};
MemoryNeed least_memory(const Config& config);

// UsageError, with both numbers and the keys to change, when a rank needs more than `available` bytes.
void check_memory(const Config& config, int64_t available);

}  // namespace tutti::train
