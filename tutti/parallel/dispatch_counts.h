// DispatchCounts: what dispatchers that share memory have done on this rank, for measurements and tests.
#pragma once

#include <atomic>
#include <cstdint>

namespace tutti::parallel {

struct DispatchCounts {
  std::atomic<int64_t> moves{0};         // calls that moved rows between ranks
  std::atomic<int64_t> barriers{0};      // meetings of all ranks in them
  std::atomic<int64_t> moved_bytes{0};   // of rows that this rank stored at other ranks, or read there
  std::atomic<int64_t> memory_bytes{0};  // of receive buffers that are there now
};

// Counts what this rank has done since it began. Any thread may read them.
DispatchCounts& dispatch_counts();

}  // namespace tutti::parallel
