#include "tutti/parallel/token_places.h"

#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/ops/sum_to.h"

namespace tutti::parallel {

TokenPlaces::TokenPlaces(const char* dispatcher, std::shared_ptr<comm::ProcessGroup> group, int64_t experts, int64_t max_tokens)
    : dispatcher_(dispatcher), group_(std::move(group)), experts_(experts), max_tokens_(max_tokens) {}

SymInt TokenPlaces::most(const SymInt& T, const SymInt& K, const SymInt& most_tokens) const {
  const SymInt most = max_tokens_ > 0 ? SymInt(max_tokens_) : most_tokens;
  TUTTI_CHECK(T <= most, "{}: {} tokens, and max_tokens is {}", dispatcher_, T, most);
  // Without a common numbering, rows would come to experts of others.
  const int64_t sizes[] = {most.value(), K.value(), experts_};
  const uint64_t key = hash64(sizes, sizeof sizes, 1);
  if (key == agreed_) return most;
  try {
    group_->barrier({.agreement = key});
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("{}: rank {} of group '{}' has at most {} tokens with {} experts each, of {}, and others have other numbers; give all ranks as many "
                                 "tokens, or set max_tokens: {}", dispatcher_, group_->rank(), group_->name(), most, K, experts_, error.what()));
  }
  agreed_ = key;
  return most;
}

SymInt TokenPlaces::stride(const SymInt& most) {
  const int64_t grain = token_grain();
  return floordiv(most + (grain - 1), grain) * grain;
}

}  // namespace tutti::parallel
