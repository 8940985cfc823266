// Pass: where in one arena each made buffer lies.
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
  int64_t unplanned = 0;         // what all buffers would take side by side
};

// Buffers that are needed at the same time do not overlap. Largest first, each into the smallest gap that holds it.
MemoryPlan plan_memory(std::span<const Lifetime> lifetimes);

}  // namespace tutti::graph
