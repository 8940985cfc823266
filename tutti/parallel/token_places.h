// TokenPlaces: the common numbering of the tokens of ranks that divide experts.
#pragma once

#include <cstdint>
#include <memory>

#include "tutti/comm/process_group.h"
#include "tutti/core/symint.h"

namespace tutti::parallel {

// Token t of rank r has place r * stride + t. The places of a rank are whole ranges of token_grain() places, as many as its tokens need: the gradient of an expert, which sums over
// ranges (numerics contract, N5), then has the tree of each rank's own tokens as a node, however many these are.
class TokenPlaces {
 public:
  // `dispatcher` opens the messages; max_tokens: see ExpertParallelOptions.
  TokenPlaces(const char* dispatcher, std::shared_ptr<comm::ProcessGroup> group, int64_t experts, int64_t max_tokens);
  // The most tokens of a rank, for a batch of T tokens with K slots each; most_tokens: see TokenDispatcher::dispatch(). Ranks meet when these numbers
  // change. UsageError on all ranks when they have other numbers.
  SymInt most(const SymInt& T, const SymInt& K, const SymInt& most_tokens) const;

  // The places of each rank, of which none has more than `most` tokens.
  static SymInt stride(const SymInt& most);

 private:
  const char* const dispatcher_;
  const std::shared_ptr<comm::ProcessGroup> group_;
  const int64_t experts_, max_tokens_;
  mutable uint64_t agreed_ = 0;  // what the ranks have said last
};

}  // namespace tutti::parallel
