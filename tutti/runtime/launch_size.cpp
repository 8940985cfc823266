#include "tutti/runtime/launch_size.h"

#include <algorithm>

#include "tutti/core/error.h"

namespace tutti {

int64_t launch_blocks(int64_t blocks, int64_t threads_per_block, const GridLimits& limits, GridCap cap) {
  TUTTI_CHECK(threads_per_block > 0, "launch: a block of {} threads; expected 1 or more", threads_per_block);
  TUTTI_CHECK(
      limits.processors > 0 && limits.blocks_per_processor > 0 && limits.most_threads > 0,
      "launch: {} processors with {} blocks each, and at most {} threads in a launch; expected 1 or more of each",
      limits.processors, limits.blocks_per_processor, limits.most_threads);
  const int64_t fitting = limits.most_threads / threads_per_block;
  if (cap == GridCap::always || (cap == GridCap::overflow_only && blocks > fitting)) {
    int64_t at_once = 0;
    if (__builtin_mul_overflow(limits.processors, limits.blocks_per_processor, &at_once)) at_once = INT64_MAX;
    blocks = std::min({blocks, at_once, fitting});
  }
  return std::clamp<int64_t>(blocks, 1, kMostBlocks);
}

}  // namespace tutti
