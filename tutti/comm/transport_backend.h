// TransportBackend: all collectives over any Transport.
#pragma once

#include <atomic>
#include <memory>

#include "tutti/comm/backend.h"
#include "tutti/comm/call_queue.h"
#include "tutti/comm/collective_def.h"
#include "tutti/comm/exchanges/move.h"
#include "tutti/comm/exchanges/reduction.h"

namespace tutti::comm {

inline constexpr std::chrono::milliseconds kDefaultCallTimeout = std::chrono::minutes(10);

// Any thread of the rank; calls of one group happen in the order they are made.
class TransportBackend final : public Backend {
 public:
  TransportBackend(std::unique_ptr<Transport> transport, const GroupLabel& group,
                   std::chrono::milliseconds timeout = kDefaultCallTimeout);

  std::string name() const override { return traits_.name; }
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string describe_rank(int rank) const override { return describe(rank, queue_->transport().peer(rank)); }
  Answer can(const CallQuery& query) const override;
  bool gains_by_lanes() const override { return traits_.waits_for_network; }

  Work run(const CollectiveCall& call) override;
  Work send(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) override;
  Work recv(const Tensor& tensor, int peer, uint32_t tag, const CallOptions& options) override;
  Work batch_isend_irecv(std::span<const PointToPoint> operations, const CallOptions& options) override;

  void refuse(CollectiveKind kind, std::string_view why) override;
  void abort(std::string_view reason) override { queue_->fail(reason); }
  std::string failure() const override { return queue_->transport().failure(); }
  void set_timeout(std::chrono::milliseconds timeout) override;
  std::chrono::milliseconds timeout() const override {
    return std::chrono::milliseconds(timeout_ms_.load(std::memory_order_relaxed));
  }

  int64_t add_region(const std::vector<std::byte*>& bases, int64_t bytes) override {
    return queue_->add_region(bases, bytes);
  }
  void remove_region(int64_t region) override { queue_->remove_region(region); }

  CallQueue& queue() { return *queue_; }

 private:
  // Collectives of a blocking call, kept so that a call allocates nothing; one thread at a time has them.
  struct Reusable {
    std::atomic<bool> taken{false};
    Move move;
    Reduction reduction;
  };

  // Both blocking or not. The first uses kept objects where it can.
  template <class C, class Begin>
  Work launch(C Reusable::* kept, const CollectiveCall& call, const Begin& begin);
  Work start(std::unique_ptr<Collective> collective, const CollectiveCall& call);
  std::unique_ptr<Collective> make_over_hosts(const CollectiveDef& def, const CallRecord& record,
                                              const CallPart& part) const;
  std::unique_ptr<Collective> make_one(const CollectiveDef& def, const CallRecord& record,
                                       const CollectiveCall& call) const;
  std::unique_ptr<Collective> make_sequence(const CollectiveDef& def, const CallRecord& record,
                                            const CollectiveCall& call) const;
  Work messages(const CallRecord& record, std::span<const PointToPoint> operations, const CallOptions& options);
  std::chrono::milliseconds timeout_of(const CallOptions& options) const;

  const std::shared_ptr<CallQueue> queue_;
  const TransportTraits& traits_;  // of the transport in queue_
  const int rank_;
  const int size_;
  const Seat seat_;
  std::atomic<int64_t> timeout_ms_;
  Reusable reusable_;
};

}  // namespace tutti::comm
