// The least memory that a run can do with, so that impossible sizes are said before anything is allocated.
#pragma once

#include <cstdint>

#include "tutti/train/config.h"

namespace tutti::train {

// Bytes of one rank: weights, one set of gradients, the state of the optimizer, and of one virtual shard the logits,
// their gradient and the input of each block. A lower bound: what a step takes is in docs/memory.md.
struct MemoryNeed {
  int64_t parameters = 0;  // bytes of weights, gradients, optimizer state
  int64_t shard = 0;       // bytes of one virtual shard
};
MemoryNeed least_memory(const Config& config);

// UsageError with both numbers and the keys to change when a rank needs more than `available` bytes.
void check_memory(const Config& config, int64_t available);

}  // namespace tutti::train
