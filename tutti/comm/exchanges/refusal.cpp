#include "tutti/comm/exchanges/refusal.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// The reason of one rank, cut off where it is longer than any message of this library; ends with a 0.
using Reason = std::array<char, 1024>;

class ExchangeOfReasons final : public Collective {
 public:
  ExchangeOfReasons(const CallRecord& call, std::string group, int rank, int ranks, std::string why)
      : call_(call), group_(std::move(group)), why_(std::move(why)), rank_(rank), reasons_(static_cast<size_t>(ranks)) {
    // What is left of the record is equal on all ranks.
    record.sequence = call.sequence;
    record.is_refused = true;
    own_.fill(0);
    std::copy_n(why_.data(), std::min(why_.size(), own_.size() - 1), own_.data());
    for (Reason& reason : reasons_) reason.fill(0);
    reasons_[static_cast<size_t>(rank)] = own_;
    offer_ = {reinterpret_cast<const std::byte*>(own_.data()), static_cast<int64_t>(own_.size())};
    takes_ = offer_.bytes;
  }

  std::string refusal() const override { return why_; }

  bool next(Exchange& exchange) override {
    if (has_asked_) throw UsageError(verdict());
    has_asked_ = true;
    exchange.offers = {&offer_, 1};
    exchange.takes = {&takes_, 1};
    return true;
  }

  void receive(std::span<const Arrival> from) override {
    for (size_t p = 0; p < from.size(); ++p) {
      if (from[p].bytes > 0) std::memcpy(reinterpret_cast<std::byte*>(reasons_[p].data()) + from[p].offset, from[p].data, static_cast<size_t>(from[p].bytes));
    }
  }

 private:
  std::string verdict() {
    for (size_t p = 0; p < reasons_.size(); ++p) {
      Reason& reason = reasons_[p];
      reason.back() = 0;  // another process has written it
      if (reason[0] == 0) continue;
      return fmt::format("collective #{} of group '{}': rank {} refused its call, where rank {} called {}: {}", record.sequence, group_, p, rank_, describe(call_),
                         reason.data());
    }
    return fmt::format("collective #{} of group '{}': a rank refused its call, where rank {} called {}", record.sequence, group_, rank_, describe(call_));
  }

  const CallRecord call_;
  const std::string group_, why_;
  const int rank_;
  Reason own_;
  std::vector<Reason> reasons_;  // by rank
  ConstBlock offer_;
  int64_t takes_ = 0;
  bool has_asked_ = false;
};

}  // namespace

std::unique_ptr<Collective> make_refusal(const CallRecord& call, const std::string& group, int rank, int ranks, std::string why) {
  return std::make_unique<ExchangeOfReasons>(call, group, rank, ranks, std::move(why));
}

}  // namespace tutti::comm
