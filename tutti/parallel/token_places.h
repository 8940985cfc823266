// TokenPlaces: the common numbering of the tokens of ranks that divide experts.
#pragma once

#include <cstdint>
#include <memory>

#include "tutti/comm/process_group.h"
#include "tutti/core/symint.h"

namespace tutti::parallel {

// Token t of rank r has place r * most + t, where no rank has more than `most` tokens.
class TokenPlaces {
 public:
  // `dispatcher` opens the messages; max_tokens: see ExpertParallelOptions.
  TokenPlaces(const char* dispatcher, std::shared_ptr<comm::ProcessGroup> group, int64_t experts, int64_t max_tokens);
  // The most tokens of a rank, for a batch of T tokens with K slots each; most_tokens: see TokenDispatcher::dispatch(). Ranks meet when these numbers change. UsageError on all ranks when they have other numbers, and in strict mode,
  // where gradients are recorded, for a number that the token grain does not divide: tokens of several ranks would be summed in another order.
  SymInt most(const SymInt& T, const SymInt& K, const SymInt& most_tokens) const;

 private:
  const char* const dispatcher_;
  const std::shared_ptr<comm::ProcessGroup> group_;
  const int64_t experts_, max_tokens_;
  mutable uint64_t agreed_ = 0;  // what the ranks have said last
};

}  // namespace tutti::parallel
