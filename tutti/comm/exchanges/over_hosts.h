// Collectives over several hosts that send each byte between hosts once: ranks of a host reduce or distribute among
// themselves, and only ranks of the same place on their hosts meet those of others.
//
// With H hosts of L ranks, a host sends to the others, for tensors of n bytes on every rank: all_reduce 2 n (H - 1) /
// H, reduce_scatter (of n bytes to slices of n / HL) n (H - 1) / H, and all_gather (of n bytes each) n L (H - 1).
// Partial sums of narrow floats travel in f32. Without this, every rank sends to each rank of other hosts, which is L
// times as much.
#pragma once

#include <memory>
#include <vector>

#include "tutti/comm/collective.h"
#include "tutti/comm/collective_call.h"
#include "tutti/comm/host_layout.h"

namespace tutti::comm {

// In place on `tensor`. The ranks of each host must be a node of the tree over ranks.
std::unique_ptr<Collective> all_reduce_over_hosts(const CallRecord& record, const Seat& seat, const HostLayout& layout,
                                                  const Tensor& tensor, const ReduceOp& op);
// The same for `input`, of which rank r gets slice r.
std::unique_ptr<Collective> reduce_scatter_over_hosts(const CallRecord& record, const Seat& seat,
                                                      const HostLayout& layout, const Tensor& output,
                                                      const Tensor& input, const ReduceOp& op);
std::unique_ptr<Collective> all_gather_over_hosts(const CallRecord& record, const Seat& seat, const HostLayout& layout,
                                                  const Tensor& output, const Tensor& input);

// The base of all three: exchanges in which a rank meets some of the others only.
class OverHosts : public Collective {
 protected:
  OverHosts(const CallRecord& call, const Seat& seat, const HostLayout& layout)
      : layout_(layout), rank_(seat.rank), host_(layout.host_of(seat.rank)), place_(layout.place_of(seat.rank)) {
    record = call;
    offers_.resize(static_cast<size_t>(seat.ranks));
    takes_.resize(offers_.size());
  }
  // The ranks of this host, in the order of their places, and those of this place, in the order of their hosts.
  int beside(int place) const { return layout_.rank_at(host_, place); }
  int across(int host) const { return layout_.rank_at(host, place_); }

  // An exchange begins without any offers.
  void begin() {
    offers_.assign(offers_.size(), {});
    takes_.assign(takes_.size(), 0);
  }
  void offer(int rank, const std::byte* data, int64_t bytes) { offers_[static_cast<size_t>(rank)] = {data, bytes}; }
  void take(int rank, int64_t bytes) { takes_[static_cast<size_t>(rank)] = bytes; }
  void end(Exchange& exchange) const { exchange.offers = offers_, exchange.takes = takes_; }

  const HostLayout layout_;
  const int rank_, host_, place_;

 private:
  std::vector<ConstBlock> offers_;
  std::vector<int64_t> takes_;
};

}  // namespace tutti::comm
