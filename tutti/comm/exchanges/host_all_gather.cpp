// all_gather over hosts. In the first exchange a rank sends its slice to the ranks of its host and to those of its
// place on the other hosts; in one further exchange for each other host, the ranks of this host pass on what they got
// from there.
#include <cstring>

#include "tutti/comm/exchanges/dense.h"
#include "tutti/comm/exchanges/over_hosts.h"

namespace tutti::comm {
namespace {

class HostAllGather final : public OverHosts {
 public:
  HostAllGather(const CallRecord& call, const Seat& seat, const HostLayout& layout, const Tensor& output,
                const Tensor& input)
      : OverHosts(call, seat, layout), output_(output), bytes_(input.nbytes()) {
    const DenseInput own(input);
    if (own.data() != slice(rank_) && bytes_ > 0) std::memmove(slice(rank_), own.data(), static_cast<size_t>(bytes_));
  }

  bool next(Exchange& exchange) override {
    if (exchange_ == layout_.hosts) {
      output_.finish();
      return false;
    }
    // The host whose slices the ranks of this host exchange.
    const int host = (host_ + exchange_) % layout_.hosts;
    begin();
    for (int j = 0; j < layout_.per_host; ++j) {
      if (j != place_) meet(beside(j), layout_.rank_at(host, place_), layout_.rank_at(host, j));
    }
    if (exchange_ == 0) {
      for (int h = 0; h < layout_.hosts; ++h) {
        if (h != host_) meet(across(h), rank_, across(h));
      }
    }
    end(exchange);
    ++exchange_;
    return true;
  }

  void receive(std::span<const Arrival> from) override {
    for (size_t p = 0; p < from.size(); ++p) {
      if (from[p].bytes > 0)
        std::memcpy(slice(sources_[p]) + from[p].offset, from[p].data, static_cast<size_t>(from[p].bytes));
    }
  }

 private:
  std::byte* slice(int rank) const { return output_.data() + rank * bytes_; }
  // Gives `rank` the slice of one rank and takes that of another from it.
  void meet(int rank, int given, int taken) {
    offer(rank, slice(given), bytes_);
    take(rank, bytes_);
    sources_[static_cast<size_t>(rank)] = taken;
  }

  DenseOutput output_;
  const int64_t bytes_;  // of a slice
  std::vector<int> sources_ =
      std::vector<int>(static_cast<size_t>(layout_.hosts * layout_.per_host));  // whose slice a rank gives
  int exchange_ = 0;
};

}  // namespace

std::unique_ptr<Collective> all_gather_over_hosts(const CallRecord& record, const Seat& seat, const HostLayout& layout,
                                                  const Tensor& output, const Tensor& input) {
  return std::make_unique<HostAllGather>(record, seat, layout, output, input);
}

}  // namespace tutti::comm
