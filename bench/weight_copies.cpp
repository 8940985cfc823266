#include "bench/weight_copies.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "tutti/runtime/thread_pool.h"

namespace tutti::bench {

WeightCopies::WeightCopies(const Tensor& one, bool few) {
  constexpr int64_t memory = int64_t{192} << 20;
  const int64_t count = few ? 2 : std::clamp<int64_t>(memory / std::max<int64_t>(one.nbytes(), 1), 1, 64);
  for (int64_t i = 0; i < count; ++i) {
    copies_.push_back(Tensor::empty(one.extents(), one.dtype()));
    std::memcpy(copies_.back().raw_data(), one.raw_data(), static_cast<size_t>(one.nbytes()));
  }
}

uint64_t read_all(const Tensor& bytes) {
  const auto* words = static_cast<const uint64_t*>(bytes.raw_data());
  std::atomic<uint64_t> total = 0;
  // Words of eight bytes, added in eight sums a thread.
  ThreadPool::current().parallel_for(bytes.nbytes() / 64, 1 << 10, [&](int64_t begin, int64_t end) {
    uint64_t sums[8] = {};
    for (int64_t line = begin; line < end; ++line)
      for (int64_t i = 0; i < 8; ++i) sums[i] += words[8 * line + i];
    total += sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
  });
  return total;
}

}  // namespace tutti::bench
