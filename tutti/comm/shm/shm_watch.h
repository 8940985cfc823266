// How ranks that share memory sleep, wake each other, and detect that one has died.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "tutti/comm/shm/segment.h"
#include "tutti/comm/transport.h"
#include "tutti/runtime/function_ref.h"

namespace tutti::comm {

// One rank's side. Belongs to one thread at a time.
class ShmWatch {
 public:
  // Says that this process is rank `rank`. `local_ranks`, with as many threads as this one has, more than the cores:
  // pause() never spins. `shown_ranks` is what messages call the ranks; empty: by their numbers. `world_ranks` may be
  // empty, too.
  ShmWatch(std::shared_ptr<Segment> segment, int rank, bool one_address_space, int local_ranks,
           std::vector<int> shown_ranks, std::vector<int> world_ranks);
  ~ShmWatch();
  ShmWatch(const ShmWatch&) = delete;
  ShmWatch& operator=(const ShmWatch&) = delete;

  PeerIdentity peer(int rank) const;
  int shown(int rank) const { return shown_ranks_.empty() ? rank : shown_ranks_[static_cast<size_t>(rank)]; }
  // After something was published: wakes the peers that sleep.
  void wake_peers();
  // Call before the first pause() of a wait.
  void begin_wait();
  // Whether pause(attempt) would spin; `patience` times as long as for a usual wait.
  bool spins(uint32_t attempt, uint32_t patience) const { return attempt < spins_ * patience && !yields_at_once_; }
  // Spins, yields or sleeps (transport.h); true when it slept. `has_news` tells whether there is something to do, asked
  // before sleeping; `waits_for_own_core` whether spinning keeps the awaited peer from running.
  bool pause(uint32_t attempt, uint32_t patience, std::chrono::microseconds limit, FunctionRef<bool()> has_news,
             FunctionRef<bool()> waits_for_own_core);
  // Why the group cannot go on while rank `rank` is waited for ("" while it can): it died, or left.
  std::string why_gone(int rank);
  // It went in good order.
  bool has_left(int rank) const {
    return segment_->area(rank).presence.load(std::memory_order_acquire) == Presence::left;
  }

 private:
  bool is_dead(int rank);

  std::shared_ptr<Segment> segment_;
  SegmentHeader& header_;
  const int rank_;
  const int size_;
  const bool one_address_space_;
  const std::vector<int> shown_ranks_, world_ranks_;
  const int most_threads_;  // of each rank, so that all have a core
  uint32_t spins_ = 0, yields_ = 0;
  bool yields_at_once_ = false;  // in the wait under way
  std::vector<int> pidfds_;      // -1 until the peer was first asked about
};

}  // namespace tutti::comm
