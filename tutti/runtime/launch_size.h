// launch_blocks(): how many blocks of threads a launch of a kernel has, for every kind of device.
//
// A launch whose grid is smaller than its work is right only when its kernel takes strides of the grid over the work
// (grid_stride()), and a kernel that does so may be given any grid. All arithmetic is 64-bit and cannot overflow.
#pragma once

#include <cstdint>

namespace tutti {

// When a grid is cut to what the device runs at once.
enum class GridCap {
  always,
  overflow_only,  // only a launch that would have more threads than GridLimits::most_threads
  never,
};

struct GridLimits {
  int64_t processors = 1;  // the multiprocessors of a device, the threads of a pool
  int64_t blocks_per_processor = 64;
  int64_t most_threads = INT64_MAX;  // that one launch may have; 2^32 - 1 on HIP
};

// The largest grid of any device.
inline constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1;

// The blocks of a launch that has `blocks` blocks of work, of so many threads each: all of them, or at most
// processors * blocks_per_processor (and most_threads / threads_per_block) where `cap` cuts it; always 1 to
// kMostBlocks. One block is launched even where its threads are more than most_threads: a launch has no less.
// UsageError for limits and blocks of less than one thread.
int64_t launch_blocks(int64_t blocks, int64_t threads_per_block, const GridLimits& limits, GridCap cap);

// What block `block` of `blocks` does of `work` pieces of work: body(i) for i = block, block + blocks, ... below work.
template <class Body>
void grid_stride(int64_t block, int64_t blocks, int64_t work, const Body& body) {
  if (block >= work) return;
  for (int64_t i = block;; i += blocks) {
    body(i);
    if (blocks >= work - i) return;
  }
}

}  // namespace tutti
