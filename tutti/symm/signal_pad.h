// Signal pads: how the ranks of a handle wait for each other in shared memory.
//
// Each rank has a pad that all ranks map: [PadHeader | slots]. Slot [channel][source] of a pad is written by `source`
// alone (and `consumed` by the owner alone), so counters need no compare-and-swap, and nothing depends on the order of
// arrival. All counters start at zero and only increase. A waiter spins briefly, or yields immediately if ranks, or
// their threads, exceed cores, then sleeps on the doorbell of its own pad; a rank that changes a value for which
// another may wait rings the other's doorbell.
//
// Calls of one rank may come from several threads, on different channels.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/job/host/liveness.h"
#include "tutti/runtime/fork_guard.h"
#include "tutti/runtime/function_ref.h"
#include "tutti/symm/backend.h"

namespace tutti::comm::symm {

enum class PadPresence : uint32_t { absent, present, left };

struct alignas(128) PadHeader {
  std::atomic<uint32_t> doorbell;  // futex, shared between processes
  std::atomic<uint32_t> sleepers;
  std::atomic<PadPresence> presence;
};

struct SignalSlot {
  std::atomic<uint64_t> barrier;   // the newest barrier of this channel that `source` came to
  std::atomic<uint64_t> counter;   // what `source` added
  std::atomic<uint64_t> put;       // binary signals `source` has sent
  std::atomic<uint64_t> consumed;  // binary signals the owner has taken
};
static_assert(sizeof(SignalSlot) == 32 && std::atomic<uint64_t>::is_always_lock_free);

// Bytes of the pad for its header and for `slot_bytes` of slots.
constexpr int64_t pad_bytes_with_header(int64_t slot_bytes) {
  return static_cast<int64_t>(sizeof(PadHeader)) + slot_bytes;
}
constexpr int64_t channels_of_pad(int64_t slot_bytes, int ranks) {
  return slot_bytes / (static_cast<int64_t>(sizeof(SignalSlot)) * ranks);
}

// A fork()ed child cannot use the pads: calls are a UsageError there, and their end is not told.
class SignalPads {
 public:
  // pads[r] is where the pad of rank r is mapped. `title` opens the messages: "symmetric memory group 'k', rank 0 of
  // 2".
  SignalPads(std::vector<std::byte*> pads, int64_t slot_bytes, int rank, std::string title, std::vector<pid_t> pids);
  // Others that wait for this rank learn that it has left.
  ~SignalPads();

  // Does not tell the others at the end.
  void leave_silently() { tells_ = false; }

  int channels() const { return channels_; }
  std::byte* slots(int rank) const { return pads_[static_cast<size_t>(rank)] + sizeof(PadHeader); }
  int64_t slot_bytes() const { return slot_bytes_; }

  // A barrier that ended at its deadline is still under way: the next call on the channel goes on with it.
  void barrier(int channel, Moment deadline);
  // Waits until the peer has taken the signal before.
  void put_signal(int peer, int channel, Moment deadline);
  // Waits for a signal of the peer and takes it.
  void wait_signal(int peer, int channel, Moment deadline);
  void add(int peer, uint64_t amount, int channel);
  uint64_t value(int peer, int channel) const;
  // Returns the value that was found, which is at least `least`.
  uint64_t wait_until(int peer, uint64_t least, int channel, Moment deadline);

  // For words elsewhere in the ranks' memory. Who has changed, by a sequentially consistent store, what `rank` may wait
  // for rings; who waits returns when is_met(). `culprits` are the ranks that keep it from being met, `what` is for
  // messages.
  void ring(int rank);
  void wait(FunctionRef<std::string()> what, Moment deadline, FunctionRef<bool()> is_met,
            FunctionRef<std::vector<int>()> culprits);

 private:
  PadHeader& header(int rank) const { return *reinterpret_cast<PadHeader*>(pads_[static_cast<size_t>(rank)]); }
  // In the pad of `owner`.
  SignalSlot& slot(int owner, int channel, int source) const;
  void check_channel(std::string_view call, int channel) const;
  void check_peer(std::string_view call, int peer) const;
  std::string on_channel(std::string_view call, int channel) const;

  std::vector<std::byte*> pads_;
  int64_t slot_bytes_;
  int rank_;
  int ranks_;
  int channels_;
  int most_threads_;  // of each rank, so that all have a core
  std::string title_;
  bool tells_ = true;
  const ForkGuard process_;
  Liveness liveness_;
  std::unique_ptr<std::atomic<bool>[]> unfinished_;  // per channel: a barrier that ended at its deadline
};

}  // namespace tutti::comm::symm
