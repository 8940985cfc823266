// The order of values that sort and topk agree on: numbers by size with -0 equal to +0, NaN above all of them, and of
// equal values the lower index first, ascending or descending (numerics contract, N8).
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "tutti/core/dtype.h"

namespace tutti::facets {

// Unsigned keys compare as the values do.
template <class T>
uint64_t order_key(T value) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(static_cast<int64_t>(value)) ^ uint64_t { 1 } << 63;
  } else {
    double number;
    if constexpr (std::is_floating_point_v<T>) number = value;
    else number = to_float(value);
    if (number != number) return ~uint64_t{0};
    const uint64_t bits = std::bit_cast<uint64_t>(number == 0.0 ? 0.0 : number);
    return bits >> 63 ? ~bits : bits | uint64_t{1} << 63;
  }
}

// An element of a line: sorts by key, then by index. Descending orders complement the key.
struct Ranked {
  uint64_t key;
  int64_t index;
  friend bool operator<(const Ranked& a, const Ranked& b) { return a.key != b.key ? a.key < b.key : a.index < b.index; }
};

}  // namespace tutti::facets
