// FakeTransport: simulates any world size in one process, without peers. It checks its arguments, counts, and moves
// only the rank's own part. It can be used to test whether a program makes legal calls and how much data it would send.
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
  // Receivers get this rank's own offer and nothing from others.
  void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) override;
  bool advance() override;
  // Finishes immediately. A receive from any rank reports the next rank as its source; memory is not changed.
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

}  // namespace tutti::comm
