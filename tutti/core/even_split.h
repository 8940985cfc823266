// Parts of n things whose sizes differ by at most one, the larger ones first.
#pragma once

#include <cstdint>

namespace tutti {

struct EvenSplit {
  int64_t parts, smaller, larger_count;

  // parts >= 1.
  static constexpr EvenSplit into(int64_t n, int64_t parts) { return {parts, n / parts, n % parts}; }
  // The fewest parts of at most so many; n >= 1.
  static constexpr EvenSplit at_most(int64_t n, int64_t largest) { return into(n, (n + largest - 1) / largest); }
  constexpr int64_t begin(int64_t part) const { return part * smaller + (part < larger_count ? part : larger_count); }
  constexpr int64_t size(int64_t part) const { return smaller + (part < larger_count ? 1 : 0); }
  constexpr int64_t largest() const { return smaller + (larger_count > 0 ? 1 : 0); }
};

}  // namespace tutti
