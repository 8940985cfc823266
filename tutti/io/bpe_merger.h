// The merge loop of byte pair encoding.
// Source: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units" (ACL 2016), section 3.2.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tutti::io {

// Two neighbours become one token. The place in the list of merges is the rank; lower ranks go first.
struct BpeMerge {
  int32_t left;
  int32_t right;
  int32_t result;
};

inline uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

// std::hash of an integer is the integer; pairs of small ids would crowd a few buckets.
struct PairKeyHash {
  size_t operator()(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(key ^ (key >> 32));
  }
};

// Immutable; any thread may call.
class BpeMerger {
 public:
  // `byte_ids[b]` is the token of byte b.
  BpeMerger(const std::array<int32_t, 256>& byte_ids, std::span<const BpeMerge> merges);

  // Appends the tokens of one piece: the lowest-ranked pair is merged first, the leftmost of equals, until none is left.
  // O(n log n) in the piece's length, so a megabyte of one letter is no trap.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;

 private:
  struct Rule {
    int32_t rank;
    int32_t result;
  };
  std::array<int32_t, 256> byte_ids_;
  std::unordered_map<uint64_t, Rule, PairKeyHash> rules_;
};

}  // namespace tutti::io
