// Statistics of buckets of gradients that travel under backward.
#pragma once

#include <chrono>
#include <cstddef>

namespace tutti::parallel {

// How buckets waited for the memory of others, set_reduce_scatter_max_input_buffers().
struct InputBufferUse {
  size_t most = 0;   // under way at once
  size_t waits = 0;  // how often the oldest had to end before another one could start
  std::chrono::nanoseconds waited{0},
      waited_at_end{0};  // how long that took, and the last ones that no other had to wait for
};

// How many buckets of the last step began to move under backward, of how many.
struct EarlyBuckets {
  size_t early = 0, all = 0;
  InputBufferUse use = {};
};

}  // namespace tutti::parallel
