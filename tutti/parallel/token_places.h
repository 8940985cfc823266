// TokenPlaces: the common numbering of the tokens of ranks that divide experts.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/core/symint.h"
#include "tutti/ops/slot_rows.h"

namespace tutti::parallel {

// The gradient of an expert sums over ranges of token_grain() tokens (numerics contract, N5). What a rank adds to it
// has the tree of the ranges of its own tokens, however many tokens others have and however many there is room for;
// from there the tree goes on over the ranks.
//
// Rank r has the places r * stride() and on, as many as there is room for, in whole ranges. The sum goes over all
// ranges of places, and an empty one is the identity. So the ranges of a rank's tokens stand where that sum has their
// tree: with every half of the places goes the half of the ranges.
class TokenPlaces {
 public:
  // `dispatcher` opens the messages; max_tokens: see ExpertParallelOptions.
  TokenPlaces(const char* dispatcher, std::shared_ptr<comm::ProcessGroup> group, int64_t experts, int64_t max_tokens);
  // The most tokens of a rank, for a batch of T tokens with K slots each; most_tokens: see TokenDispatcher::dispatch().
  // Ranks meet when these numbers change. UsageError on all ranks when they have other numbers. Grains, on which places
  // depend as well, travel with the counts of every dispatch.
  SymInt most(const SymInt& T, const SymInt& K, const SymInt& most_tokens) const;

  // The places of each rank, of which none has more than `most` tokens.
  static SymInt stride(const SymInt& most, int64_t grain);
  // At which of `room` ranges of places each of `ranges` ranges of tokens stands, ascending.
  static std::vector<int64_t> ranges_of_places(int64_t ranges, int64_t room);
  // The difference between the grains of all ranks; "" if they are the same.
  static std::string differing_grains(std::span<const int64_t> grains);

 private:
  const char* const dispatcher_;
  const std::shared_ptr<comm::ProcessGroup> group_;
  const int64_t experts_, max_tokens_;
  mutable std::array<int64_t, 3> agreed_ = {
      -1, -1, -1};  // what the ranks have said last: the most tokens, experts of each, experts
};

// Where the tokens of one rank stand, of `stride` places in ranges of `grain`.
class PlacesOfTokens {
 public:
  PlacesOfTokens(int64_t tokens, int64_t stride, int64_t grain)
      : grain_(grain), ranges_(TokenPlaces::ranges_of_places((tokens + grain - 1) / grain, stride / grain)) {}
  int64_t operator[](int64_t token) const {
    return ranges_[static_cast<size_t>(token / grain_)] * grain_ + token % grain_;
  }

 private:
  const int64_t grain_;
  const std::vector<int64_t> ranges_;
};

// The place of the token of each row among those of all ranks, of which this one is number `rank`. Shapes: slot_of_row
// i64 [N], grains i64 [W] of all ranks -> i64 [N]. UsageError unless the grains are the same.
Tensor places_of_rows(const SlotOrder& order, const Tensor& grains_W, int64_t rank, const SymInt& stride,
                      int64_t grain);

}  // namespace tutti::parallel
