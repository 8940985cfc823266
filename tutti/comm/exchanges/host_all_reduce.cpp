// all_reduce over hosts, in pieces that stay in the caches. Each rank of a host reduces its share of a piece, then the
// slice that its host owns of that share; slices and shares are gathered in the opposite order.
#include <algorithm>
#include <cstring>

#include "tutti/comm/exchanges/dense.h"
#include "tutti/comm/exchanges/host_reduction.h"

namespace tutti::comm {
namespace {

constexpr int64_t kPieceBytes = 4 << 20;

struct Range {
  int64_t begin = 0, end = 0;  // elements of the tensor
  int64_t count() const { return end - begin; }
};

// Part `i` of `parts` of a range.
Range part_of(const Range& range, int i, int parts) {
  const int64_t each = (range.count() + parts - 1) / parts;
  return {range.begin + std::min(each * i, range.count()), range.begin + std::min(each * (i + 1), range.count())};
}

class HostAllReduce final : public HostReduction {
 public:
  HostAllReduce(const CallRecord& call, const Seat& seat, const HostLayout& layout, const Tensor& tensor,
                const ReduceOp& op)
      : HostReduction(call, seat, layout, tensor.dtype(), op), output_(tensor, true), count_(tensor.numel()) {}

  bool next(Exchange& exchange) override {
    if (needs_factors()) {
      exchange_factors(exchange);
      return true;
    }
    phase_ = after(phase_);
    if (phase_ == Phase::reduce_inside) {
      piece_ = {piece_.end, std::min(piece_.end + kPieceBytes / narrow_, count_)};
      if (piece_.count() == 0) {
        output_.finish();
        return false;
      }
      partials_.resize(static_cast<size_t>(share(place_).count() * wide_));
    }
    begin();
    switch (phase_) {
      case Phase::reduce_inside:
        for (int j = 0; j < layout_.per_host; ++j) {
          offer_elements(beside(j), share(j));
          take(beside(j), share(place_).count() * narrow_);
        }
        break;
      case Phase::reduce_between:
        for (int h = 0; h < layout_.hosts; ++h) {
          offer(across(h), partials_.data() + (slice(h).begin - share(place_).begin) * wide_, slice(h).count() * wide_);
          take(across(h), slice(host_).count() * wide_);
        }
        break;
      case Phase::gather_between:
        for (int h = 0; h < layout_.hosts; ++h) {
          if (h == host_) continue;
          offer_elements(across(h), slice(host_));
          take(across(h), slice(h).count() * narrow_);
        }
        break;
      default:
        for (int j = 0; j < layout_.per_host; ++j) {
          if (j == place_) continue;
          offer_elements(beside(j), share(place_));
          take(beside(j), share(j).count() * narrow_);
        }
    }
    end(exchange);
    return true;
  }

  void receive(std::span<const Arrival> from) override {
    switch (phase_) {
      case Phase::factors:
        return keep_factors(from);
      case Phase::reduce_inside:
        return combine_host(from, partials_.data());
      case Phase::reduce_between:
        return combine_hosts(from, at(slice(host_).begin));
      case Phase::gather_between:
        for (int h = 0; h < layout_.hosts; ++h) keep(from[static_cast<size_t>(across(h))], slice(h));
        return;
      case Phase::gather_inside:
        for (int j = 0; j < layout_.per_host; ++j) keep(from[static_cast<size_t>(beside(j))], share(j));
        return;
    }
  }

 private:
  enum class Phase : uint8_t { factors, reduce_inside, reduce_between, gather_between, gather_inside };
  static Phase after(Phase phase) {
    return phase == Phase::gather_inside ? Phase::reduce_inside : static_cast<Phase>(static_cast<uint8_t>(phase) + 1);
  }

  // What the rank of a place reduces of the piece, and what the hosts have of this rank's share.
  Range share(int place) const { return part_of(piece_, place, layout_.per_host); }
  Range slice(int host) const { return part_of(share(place_), host, layout_.hosts); }
  std::byte* at(int64_t element) const { return output_.data() + element * narrow_; }
  void offer_elements(int rank, const Range& range) { offer(rank, at(range.begin), range.count() * narrow_); }
  void keep(const Arrival& arrival, const Range& range) const {
    if (arrival.bytes > 0)
      std::memcpy(at(range.begin) + arrival.offset, arrival.data, static_cast<size_t>(arrival.bytes));
  }

  Phase phase_ = Phase::factors;
  DenseOutput output_;
  const int64_t count_;
  Range piece_;
  std::vector<std::byte> partials_;  // of this rank's share of the piece
};

}  // namespace

std::unique_ptr<Collective> all_reduce_over_hosts(const CallRecord& record, const Seat& seat, const HostLayout& layout,
                                                  const Tensor& tensor, const ReduceOp& op) {
  return std::make_unique<HostAllReduce>(record, seat, layout, tensor, op);
}

}  // namespace tutti::comm
