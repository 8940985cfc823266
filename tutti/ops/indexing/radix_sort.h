// Stable sorting of unsigned keys by some of their bits, by all threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "tutti/runtime/thread_pool.h"

namespace tutti::facets {

// Entries are cut into chunks, one for each thread, whose order is that of the entries: what is counted in a first pass
// says where each chunk writes in a second one. So the number of chunks changes no result.
struct EntryChunks {
  static constexpr int64_t kLeast = 1 << 15;  // entries at least that are worth a thread

  explicit EntryChunks(int64_t n)
      : entries(n),
        count(ThreadPool::is_inside_loop()
                  ? 1
                  : std::clamp<int64_t>(n / kLeast, 1, std::max(ThreadPool::current().threads(), 1))) {}
  // Calls fn(chunk, begin, end) for all of them.
  template <class Fn>
  void each(Fn fn) const {
    if (count == 1) return fn(size_t{0}, int64_t{0}, entries);
    ThreadPool::current().parallel_for(count, 1, [&](int64_t first, int64_t last) {
      for (int64_t c = first; c < last; ++c) fn(static_cast<size_t>(c), entries * c / count, entries * (c + 1) / count);
    });
  }
  int64_t entries, count;
};

// Sorts `keys` by the bits [low, high), lowest digit first, each pass stable. Returns which of the two has the result.
template <class Key>
Key* sort_bits(Key* keys, Key* other, int64_t n, int low, int high) {
  constexpr int kDigitBits = 10;  // 1024 places to write to: the lines at their ends stay in the first-level cache
  using Places = std::array<int64_t, size_t{1} << kDigitBits>;
  const EntryChunks chunks(n);
  std::vector<Places> places(static_cast<size_t>(chunks.count));  // of each chunk: counts, then where it writes
  const int passes = (high - low + kDigitBits - 1) / kDigitBits;
  for (int pass = 0; pass < passes; ++pass) {
    const int shift = low + (high - low) * pass / passes, width = low + (high - low) * (pass + 1) / passes - shift;
    const Key mask = static_cast<Key>((Key{1} << width) - 1);
    chunks.each([&](size_t c, int64_t begin, int64_t end) {
      Places& counts = places[c];
      std::fill_n(counts.begin(), mask + 1, int64_t{0});
      for (int64_t i = begin; i < end; ++i) ++counts[keys[i] >> shift & mask];
    });
    int64_t place = 0;
    for (size_t digit = 0; digit <= mask; ++digit) {
      for (Places& of_chunk : places) place += std::exchange(of_chunk[digit], place);
    }
    chunks.each([&](size_t c, int64_t begin, int64_t end) {
      Places& next = places[c];
      for (int64_t i = begin; i < end; ++i) other[next[keys[i] >> shift & mask]++] = keys[i];
    });
    std::swap(keys, other);
  }
  return keys;
}

}  // namespace tutti::facets
