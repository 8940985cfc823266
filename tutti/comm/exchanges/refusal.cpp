#include "tutti/comm/exchanges/refusal.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/comm/exchanges/tell_all.h"

namespace tutti::comm {
namespace {

// The reason of one rank is cut off where it is longer than any message of this library; it ends with a 0.
constexpr size_t kReasonBytes = 1024;

std::vector<std::byte> bytes_of(const std::string& why) {
  std::vector<std::byte> bytes(kReasonBytes);
  std::memcpy(bytes.data(), why.data(), std::min(why.size(), kReasonBytes - 1));
  return bytes;
}

class ExchangeOfReasons final : public TellAll {
 public:
  ExchangeOfReasons(const CallRecord& call, std::string group, int rank, int ranks, std::string why)
      : TellAll(bytes_of(why), ranks), call_(call), group_(std::move(group)), why_(std::move(why)), rank_(rank) {
    // What is left of the record is equal on all ranks.
    record.sequence = call.sequence;
    record.is_refused = true;
  }

  std::string refusal() const override { return why_; }

 private:
  std::string verdict() const override {
    for (size_t p = 0; p < ranks(); ++p) {
      const auto* text = reinterpret_cast<const char*>(told(p).data());
      const std::string reason(text, strnlen(text, kReasonBytes));  // another process has written it
      if (reason.empty()) continue;
      return fmt::format("collective #{} of group '{}': rank {} refused its call, where rank {} called {}: {}",
                         record.sequence, group_, p, rank_, describe(call_), reason);
    }
    return fmt::format("collective #{} of group '{}': a rank refused its call, where rank {} called {}",
                       record.sequence, group_, rank_, describe(call_));
  }

  const CallRecord call_;
  const std::string group_, why_;
  const int rank_;
};

}  // namespace

std::unique_ptr<Collective> make_refusal(const CallRecord& call, const std::string& group, int rank, int ranks,
                                         std::string why) {
  return std::make_unique<ExchangeOfReasons>(call, group, rank, ranks, std::move(why));
}

}  // namespace tutti::comm
