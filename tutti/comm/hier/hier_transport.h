// A hierarchical transport: ranks of one host communicate through the inner transport, all others through the outer
// one.
//
// A round is divided into pieces of bounded size that are processed one after another, each as one round of the inner
// and one of the outer transport at the same time. The data of a piece is collected until it is complete, and then
// delivered together, so parts have equal offsets and lengths wherever the ranks are. The first piece carries the total
// size before the data; all ranks use as many pieces as the rank with the most data needs.
//
// Steps: 1 for small offers, then one per piece. Memory: two pieces for each rank, about 4 MiB.
#pragma once

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/transport.h"

namespace tutti::comm {

class HierTransport final : public Transport {
 public:
  // `outer` spans all ranks, of which rank r is on host hosts[r]. `inner` spans those of this rank's host, in the order
  // of their group ranks. UsageError when that does not fit together.
  HierTransport(std::unique_ptr<Transport> inner, std::unique_ptr<Transport> outer, std::span<const int> hosts,
                std::string group);

  int rank() const override { return outer_->rank(); }
  int size() const override { return outer_->size(); }
  const TransportTraits& traits() const override { return traits_; }
  PeerIdentity peer(int rank) const override;
  void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) override;
  bool advance() override;
  // Receiving from anybody is not possible: the message could come on either side.
  void post(Message& message) override;
  void advance_messages() override;
  void cancel(Message& message) override;
  void take_refusals(std::vector<Refusal>& into) override;
  void look_after(int peer, const CallRecord& call) override;
  bool pause(uint32_t attempt, std::chrono::microseconds limit) override;
  std::vector<int> late_ranks() const override;
  std::string last_seen(int rank) const override;
  void fail(std::string_view reason) override;
  void abandon() override;
  std::string failure() const override;

 private:
  // Keeps what one side brings of a piece.
  class Side final : public Receiver {
   public:
    void receive(std::span<const Arrival> from) override;
    std::unique_ptr<Transport> transport;
    std::vector<int> to_group;  // group rank of each of its ranks
    HierTransport* owner = nullptr;
    std::vector<ConstBlock> offers;
    std::vector<int64_t> takes;
    Exchange exchange;
    bool finished = false;
    std::exception_ptr refused;  // UsageError: the calls differ
  };
  struct Posted {
    Message* message;
    Message part;  // with the rank of the side
    bool is_inner;
  };

  bool is_local(int rank) const { return inner_rank_[static_cast<size_t>(rank)] >= 0; }
  void begin_piece();
  bool advance_side(Side& side);
  bool advance_pieces();
  void end_piece();
  void check_sizes();
  void spread_failure();

  Side inner_side_, outer_side_;
  Transport* inner_;
  Transport* outer_;
  std::vector<int> inner_rank_;  // -1: on another host
  const std::string group_;
  const int64_t piece_bytes_;
  const int64_t first_bytes_;
  TransportTraits traits_;

  // The round under way.
  const CallRecord* call_ = nullptr;
  const Exchange* exchange_ = nullptr;
  Receiver* receiver_ = nullptr;
  int64_t sub_step_ = 0;  // rounds of the two sides in this call
  bool first_ = true;     // the piece under way carries the sizes
  int64_t offset_ = 0;    // of the piece
  int64_t bytes_ = 0;     // of each offer that the piece may carry
  int64_t most_ = 0;      // bytes of the largest offer of all ranks
  bool active_ = false;
  bool delivered_ = false;
  std::vector<std::byte> outgoing_;  // the first piece with what stands in front
  std::vector<std::vector<std::byte>> staged_;
  std::vector<int64_t> staged_bytes_;
  std::vector<std::unique_ptr<Posted>> posted_;
};

}  // namespace tutti::comm
