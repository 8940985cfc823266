// Transport: moves bytes between the ranks of a group. Collectives are written once, over this interface.
//
// There are two kinds of transfers. An Exchange is a round in which every rank of the group takes part: each rank
// offers bytes to its peers and takes what they offer. A collective consists of one or more exchanges; all arithmetic
// happens in the receiver, in rank order, so it has the same bits on every transport. A Message goes from one rank to
// another.
//
// A transport belongs to one group of one rank. Calls come from one thread at a time (the group holds a lock); only
// fail() and interrupt() may be called by any thread at any time. Only pause() may sleep: advance() does what can be
// done now, and the caller decides what else to do between attempts (progress.h).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/host_layout.h"
#include "tutti/comm/refusals.h"
#include "tutti/core/device.h"
#include "tutti/diagnose/call_record.h"
#include "tutti/job/errors.h"
#include "tutti/job/peer.h"

namespace tutti::comm {

using Clock = std::chrono::steady_clock;

struct ConstBlock {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

// One round. The caller must not modify what the spans refer to until advance() reports that the round is finished.
struct Exchange {
  // The bytes offered to each peer: one entry per rank, or a single entry that every peer takes.
  std::span<const ConstBlock> offers;
  // The number of bytes this rank takes from each peer: one entry per rank, or a single entry for all.
  // takes[p] must equal what p offers to this rank, else a transport throws UsageError on all ranks. A rank
  // that offers one block to all need not take its own.
  std::span<const int64_t> takes;

  const ConstBlock& offer_to(int rank) const {
    return offers.size() == 1 ? offers[0] : offers[static_cast<size_t>(rank)];
  }
  int64_t take_from(int rank) const { return takes.size() == 1 ? takes[0] : takes[static_cast<size_t>(rank)]; }
  bool offers_one_block() const { return offers.size() == 1; }
  // This rank has just written what it offers, as far as can be known.
  bool is_fresh = false;
  // The receiver may overwrite what this rank offers, so peers must not read it in place.
  bool overwrites_offers = false;
};

// A part of what peer p offers, readable by this rank until receive() returns.
struct Arrival {
  const std::byte* data = nullptr;
  int64_t bytes = 0;   // 0: nothing, or nothing more, from this peer
  int64_t offset = 0;  // position of the part in the peer's offer
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  // Where the offer of `peer` in the round under way is to stand unchanged, from its byte 0 on; null when there is no
  // such place. A transport may write a part there before it delivers it, and then delivers it from there.
  virtual std::byte* place_of(int /*peer*/) { return nullptr; }
  // from[p] is the next part of peer p's offer; the rank's own offer is delivered like the others. When all ranks
  // offer the same number of bytes, the parts of one call have the same offset and length. Parts of one peer arrive in
  // order. Offset and length of parts are multiples of 64, except for the length of the last one.
  virtual void receive(std::span<const Arrival> from) = 0;
};

struct Message {
  bool is_send = true;
  int peer = -1;  // group rank; for receives -1 means any rank, and the sender's rank is stored here
  uint32_t tag = 0;
  std::byte* data = nullptr;  // not written when sending
  int64_t bytes = 0;          // for receives: must equal the number of bytes sent
  DType dtype = DType::u8;    // for receives: must equal the dtype sent
  int64_t done_bytes = 0;     // kept by the transport
  uint64_t handle = 0;        // kept by the transport
  bool finished = false;      // set by the transport, also when the message failed
  // Set by the transport: why the message failed; "" when it has not. A message that does not match its receive is
  // refused: the receive fails, and so does the send if it has not finished. The sender gets a Refusal in both cases.
  std::string error;
  const CallRecord* call =
      nullptr;  // the call it belongs to: its number travels with the message, for the texts of errors
};

struct TransportTraits {
  const char* name;
  std::vector<DeviceKind> devices;
  bool moves_data = true;         // false for the fake transport, which only checks and counts
  bool receives_from_any = true;  // Message::peer == -1
  // Rounds wait for a network rather than for this machine, so that several at once take less time than one after the
  // other. A transport carries one; ProcessGroup::lanes() makes more transports.
  bool waits_for_network = false;
  // An exchange of at most this many bytes per rank costs about one round of latency; up to this size all_reduce is one
  // round.
  int64_t one_round_bytes = 16 << 10;
  // A larger all_reduce is divided into pieces of this many bytes, each of which is reduced and gathered while it is in
  // the caches.
  int64_t piece_bytes = 2 << 20;
  // It is not divided where each rank reduces at least this much of it. May become smaller while the first rounds are
  // under way, after the same one on all ranks.
  int64_t one_piece_share_bytes = std::numeric_limits<int64_t>::max();
  // How the ranks lie on several hosts, when collectives should send each byte between hosts once.
  std::optional<HostLayout> hosts = {};
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const TransportTraits& traits() const = 0;
  virtual PeerIdentity peer(int rank) const = 0;

  // Begins a round; the previous one must have finished. `call` is the call it belongs to; `step` counts the rounds of
  // that call from 0. call, exchange and receiver must live until the round is finished.
  virtual void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) = 0;
  // Progresses the round; true when it is finished. Throws UsageError when the ranks' calls differ (the round is
  // then over on all ranks, and the group remains usable), PeerError when the group has failed.
  virtual bool advance() = 0;

  // Posts a message, which must live until it is finished or cancelled; several may be outstanding. Messages between
  // two ranks with the same tag arrive in the order in which they were posted.
  virtual void post(Message& message) = 0;
  // Progresses all posted messages.
  virtual void advance_messages() = 0;
  // Cancels a posted message; its memory is not accessed any more.
  virtual void cancel(Message& message) = 0;
  // Appends the refusals of this rank's messages that have arrived since the last call. Never throws because of a
  // failed group.
  virtual void take_refusals(std::vector<Refusal>&) {}
  // Fails the group if `peer`, to which `call` sends, has died: nobody may ever wait for it otherwise, as small
  // messages are taken at once. A rank that has left in good order is no failure. Costs a system call.
  virtual void look_after(int /*peer*/, const CallRecord& /*call*/) {}

  // Called between attempts without progress, which `attempt` counts from 0: spins, yields, or sleeps until something
  // may have changed, at most `limit`; checks from time to time whether peers are alive and fails the group when one is
  // gone. False when it has only spun, so that hardly any time has passed.
  virtual bool pause(uint32_t attempt, std::chrono::microseconds limit) = 0;
  // The ranks that have not joined the current round, for the message of a timeout.
  virtual std::vector<int> late_ranks() const = 0;
  // The last known activity of `rank`: "at collective #41, all_reduce(f32 [3], sum)"; "" when unknown.
  virtual std::string last_seen(int rank) const = 0;

  // Registers a region of `bytes` bytes per rank; bases[p] is this process's address of rank p's part. All ranks
  // register the same regions in the same order. Offers that lie in bases[rank()] may be read in place from then on.
  // Returns the number of the region, or -1 when the transport does not use regions.
  virtual int64_t add_region(std::vector<std::byte*>, int64_t /*bytes*/) { return -1; }
  virtual void remove_region(int64_t) {}

  // Makes pause() return in another thread of this rank. Any thread.
  virtual void interrupt() {}

  // Ends the group on every rank that can be reached: waiting and later calls throw PeerError with the first reason
  // given. Any thread.
  virtual void fail(std::string_view reason) = 0;
  // After fail(): abandons the current round. When it returns, no peer reads this rank's memory any more.
  virtual void abandon() {}
  // Why the group has failed, or "". Any thread.
  virtual std::string failure() const = 0;
};

}  // namespace tutti::comm
