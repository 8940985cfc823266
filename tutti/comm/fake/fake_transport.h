// A transport without peers: any world size in one process. It checks what it is given, counts, and moves nothing but a
// rank's own part; so it answers at once whether a program makes legal calls, and how much it would send.
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "tutti/comm/transports.h"

namespace tutti::comm {

struct CallCount {
  int64_t calls = 0;
  int64_t rounds = 0;          // a call has one or more
  int64_t sent_bytes = 0;      // offered to other ranks
  int64_t received_bytes = 0;  // taken from other ranks
};

class FakeTransport final : public Transport {
 public:
  // UsageError unless 0 <= rank < size.
  FakeTransport(int rank, int size, std::string group = "fake");

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const TransportTraits& traits() const override;
  PeerIdentity peer(int rank) const override;  // this process, whoever is asked for
  // Receivers get their own offer and nothing from the others.
  void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) override;
  bool advance() override;
  // Finishes at once. What a receive from anybody gets comes from the next rank; memory is left as it is.
  void post(Message& message) override;
  void advance_messages() override;
  void cancel(Message&) override {}
  bool pause(uint32_t, std::chrono::microseconds) override { return false; }
  std::vector<int> late_ranks() const override { return {}; }
  std::string last_seen(int rank) const override;
  void fail(std::string_view reason) override;
  std::string failure() const override;

  // Since the beginning or the last reset; messages count as send and recv.
  CallCount count(CollectiveKind kind) const { return counts_[static_cast<size_t>(kind)]; }
  CallCount total() const;
  void reset_counts() { counts_ = {}; }

 private:
  void throw_if_failed() const;

  const int rank_;
  const int size_;
  const std::string group_;
  const Exchange* exchange_ = nullptr;  // of the round under way
  Receiver* receiver_ = nullptr;
  CallRecord last_;
  std::array<CallCount, kNumCollectiveKinds> counts_{};
  mutable std::mutex failure_mutex_;
  std::string failure_;
};

std::unique_ptr<Transport> make_fake_transport(const GroupSeat& seat);

}  // namespace tutti::comm
