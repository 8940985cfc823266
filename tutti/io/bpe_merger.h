// The merge loop of byte pair encoding.
// Source: Sennrich, Haddow, Birch, "Neural machine translation of rare words with subword units" (ACL 2016),
// section 3.2.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tutti::io {

// Two adjacent tokens become one. The index in the list of merges is the rank; lower ranks are merged first.
struct BpeMerge {
  int32_t left;
  int32_t right;
  int32_t result;
};

inline uint64_t pair_key(int32_t left, int32_t right) {
  return (uint64_t{static_cast<uint32_t>(left)} << 32) | static_cast<uint32_t>(right);
}

// A mixing hash, because std::hash of an integer is often the integer itself and would put pairs of small ids in few
// buckets.
struct PairKeyHash {
  size_t operator()(uint64_t key) const {
    key *= 0x9E3779B97F4A7C15ull;
    return static_cast<size_t>(key ^ (key >> 32));
  }
};

// The tokens that merging starts from.
struct ByteTokens {
  // The token of each byte; kNoToken: the byte becomes the unknown token, or is left out where there is none.
  std::array<int32_t, 256> ids{};
  std::optional<int32_t> unknown;
  bool fuses_unknown = false;  // whether unknown bytes in a row become one token

  static constexpr int32_t kNoToken = -1;
};

// Immutable; any thread may call.
class BpeMerger {
 public:
  BpeMerger(const ByteTokens& bytes, std::span<const BpeMerge> merges);

  // Appends the tokens of one piece to `ids`. The pair with the lowest rank is merged first, the leftmost of equals,
  // until no pair is left. Takes O(n log n) time in the length of the piece, whatever its content.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;
  // The same for a piece of which the first tokens are known.
  void merge(std::span<const int32_t> tokens, std::vector<int32_t>& ids) const;

 private:
  struct Rule {
    int32_t rank;
    int32_t result;
  };
  ByteTokens bytes_;
  std::unordered_map<uint64_t, Rule, PairKeyHash> rules_;
};

}  // namespace tutti::io
