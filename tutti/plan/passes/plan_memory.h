// Pass: assigns each intermediate buffer an offset in one arena.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::graph {

// A buffer is needed in steps [first, last].
struct Lifetime {
  int64_t nbytes;
  int32_t first, last;
};

struct MemoryPlan {
  std::vector<int64_t> offsets;  // bytes, multiples of 64; one per lifetime
  int64_t total = 0;             // of the arena
  int64_t unplanned = 0;         // total size of all buffers without sharing
};

// Buffers that are needed at the same time do not overlap. Buffers are placed largest first, each in the smallest gap
// that fits.
MemoryPlan plan_memory(std::span<const Lifetime> lifetimes);

}  // namespace tutti::graph
