// reduce_scatter over hosts. In one exchange for each host, the ranks of this host reduce the slices of that host's
// ranks, each rank for the one that has its place there. In the last exchange partial results go where they belong.
#include "tutti/comm/exchanges/dense.h"
#include "tutti/comm/exchanges/host_reduction.h"

namespace tutti::comm {
namespace {

class HostReduceScatter final : public HostReduction {
 public:
  HostReduceScatter(const CallRecord& call, const Seat& seat, const HostLayout& layout, const Tensor& output,
                    const Tensor& input, const ReduceOp& op)
      : HostReduction(call, seat, layout, output.dtype(), op), input_(input), output_(output), count_(output.numel()) {
    partials_.resize(static_cast<size_t>(layout.hosts * count_ * wide_));
  }

  bool next(Exchange& exchange) override {
    if (needs_factors()) {
      exchange_factors(exchange);
      return true;
    }
    if (++exchange_ > layout_.hosts) {
      output_.finish();
      return false;
    }
    begin();
    if (exchange_ < layout_.hosts) {
      for (int j = 0; j < layout_.per_host; ++j) {
        offer(beside(j), input_.data() + layout_.rank_at(exchange_, j) * output_.bytes(), output_.bytes());
        take(beside(j), output_.bytes());
      }
    } else {
      for (int h = 0; h < layout_.hosts; ++h) {
        offer(across(h), partials_of(h), count_ * wide_);
        take(across(h), count_ * wide_);
      }
    }
    end(exchange);
    return true;
  }

  void receive(std::span<const Arrival> from) override {
    if (exchange_ < 0) keep_factors(from);
    else if (exchange_ < layout_.hosts) combine_host(from, partials_of(exchange_));
    else combine_hosts(from, output_.data());
  }

 private:
  std::byte* partials_of(int host) { return partials_.data() + host * count_ * wide_; }

  const DenseInput input_;
  DenseOutput output_;
  const int64_t count_;              // elements of a slice
  std::vector<std::byte> partials_;  // for each host
  int exchange_ = -1;
};

}  // namespace

std::unique_ptr<Collective> reduce_scatter_over_hosts(const CallRecord& record, const Seat& seat,
                                                      const HostLayout& layout, const Tensor& output,
                                                      const Tensor& input, const ReduceOp& op) {
  return std::make_unique<HostReduceScatter>(record, seat, layout, output, input, op);
}

}  // namespace tutti::comm
