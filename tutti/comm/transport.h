// Transport: what moves bytes between the ranks of a group. Collectives are written once, over these few words.
//
// There are two kinds of movement. An Exchange is a round in which every rank of the group takes part: each offers bytes
// to its peers and takes what they offer; collectives are one or more exchanges, and all arithmetic happens in the
// receiver, in rank order, so it has the same bits on every transport. A Message goes from one rank to another.
//
// A transport belongs to one group of one rank. Calls come from one thread at a time (the group holds a lock); only
// fail() may be called by any thread at any moment. Nothing here blocks: advance() does what can be done now, and the
// caller decides between further attempts what else to do (progress.h).
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/comm/call_record.h"
#include "tutti/comm/errors.h"
#include "tutti/core/device.h"

namespace tutti::comm {

using Clock = std::chrono::steady_clock;

struct ConstBlock {
  const std::byte* data = nullptr;
  int64_t bytes = 0;
};

// One round. What the spans refer to stays untouched by the caller until advance() says the round is finished.
struct Exchange {
  // What each peer may take: one entry per rank, or a single entry that every peer takes.
  std::span<const ConstBlock> offers;
  // Bytes this rank takes from each peer: one entry per rank, or a single one that holds for all.
  // takes[p] here equals what p offers to this rank; a transport throws UsageError on all ranks when it does not. A rank
  // that offers one block to all may spare itself its own.
  std::span<const int64_t> takes;

  const ConstBlock& offer_to(int rank) const { return offers.size() == 1 ? offers[0] : offers[static_cast<size_t>(rank)]; }
  int64_t take_from(int rank) const { return takes.size() == 1 ? takes[0] : takes[static_cast<size_t>(rank)]; }
  bool offers_one_block() const { return offers.size() == 1; }
  // The receiver may write into what this rank offers: peers must not read it in place.
  bool overwrites_offers = false;
};

// A part of what peer p offers, somewhere this rank can read it until receive() returns.
struct Arrival {
  const std::byte* data = nullptr;
  int64_t bytes = 0;   // 0: nothing (more) from this peer
  int64_t offset = 0;  // of the part in the peer's offer
};

class Receiver {
 public:
  virtual ~Receiver() = default;
  // from[p] is the next part of peer p's offer; the own offer (p == rank) is delivered like the others. When all ranks
  // offer equally many bytes, the parts of one call have the same offset and length. Parts of one peer come in order.
  // The offset and length of parts are multiples of 64 but at the end.
  virtual void receive(std::span<const Arrival> from) = 0;
};

struct Message {
  bool is_send = true;
  int peer = -1;          // group rank; receiving: -1 takes from any rank, and the sender is stored here
  uint32_t tag = 0;
  std::byte* data = nullptr;  // not written when sending
  int64_t bytes = 0;          // receiving: must equal what was sent
  DType dtype = DType::u8;    // the same
  int64_t done_bytes = 0;     // kept by the transport
  uint64_t handle = 0;        // kept by the transport
  bool finished = false;      // set by the transport, also when it failed
  // Set by the transport: why it failed; "" when it has not. A message that does not fit the receive that takes it is refused:
  // the receive fails, and so does what the sender has under way with that rank, or when that is nothing what it posts next.
  std::string error;
  const CallRecord* call = nullptr;  // what it belongs to, for the texts of errors
};

// Who a rank is, for messages.
struct PeerIdentity {
  pid_t pid = 0;
  std::string host;
};
std::string describe(int rank, const PeerIdentity& identity);  // "rank 3 (pid 4711 on host7)"; without a pid "rank 3"

struct TransportTraits {
  const char* name;
  std::vector<DeviceKind> devices;
  bool moves_data = true;            // false: fake, which only checks and counts
  bool receives_from_any = true;     // Message::peer == -1
  // An exchange of at most this many bytes per rank costs about one round of latency: below it all_reduce is one round.
  int64_t one_round_bytes = 16 << 10;
  // all_reduce of more goes through in pieces of so many bytes, each reduced and gathered while it is in the caches.
  int64_t piece_bytes = 2 << 20;
};

class Transport {
 public:
  virtual ~Transport() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual const TransportTraits& traits() const = 0;
  virtual PeerIdentity peer(int rank) const = 0;

  // Begins a round; the one before it has finished. `call` is what it belongs to; `step` counts the rounds of that
  // call from 0. All three objects live until the round is finished.
  virtual void start(const CallRecord& call, int64_t step, const Exchange& exchange, Receiver& receiver) = 0;
  // Brings the round forward; true when it is finished. Throws UsageError when the ranks' calls differ (the round is
  // then over on all ranks and the group may go on), PeerError when the group has failed.
  virtual bool advance() = 0;

  // Messages between two ranks arrive in the order they were posted with one tag. The message lives until finished or
  // cancelled; several may be under way.
  virtual void post(Message& message) = 0;
  // Brings all posted messages forward.
  virtual void advance_messages() = 0;
  // Forgets a message that was posted; its memory is not touched any more.
  virtual void cancel(Message& message) = 0;

  // Called between attempts that brought nothing, `attempt` counting from 0: spins, yields, or sleeps until something
  // may have changed, at most `limit`; looks after the peers now and then and fails the group when one is gone. False when
  // it has only spun, so that next to no time has passed.
  virtual bool pause(uint32_t attempt, std::chrono::microseconds limit) = 0;
  // The ranks that have not come to the round under way, for the message of a deadline.
  virtual std::vector<int> late_ranks() const = 0;
  // What `rank` did last, as far as is known: "at collective #41, all_reduce(f32 [3], sum)"; "" when nothing is.
  virtual std::string last_seen(int rank) const = 0;

  // Says that `bases[p]` is where this process sees a region of `bytes` bytes of rank p; all ranks register the same
  // regions in the same order. Offers that lie in bases[rank()] may be read in place from then on. Returns the region's
  // number, -1 when the transport has no use for it.
  virtual int64_t add_region(std::vector<std::byte*>, int64_t /*bytes*/) { return -1; }
  virtual void remove_region(int64_t) {}

  // Makes a pause() of another thread of this rank return. Any thread.
  virtual void interrupt() {}

  // Ends the group on every rank that can be told: whoever waits, or calls later, throws PeerError with the first
  // reason. Any thread.
  virtual void fail(std::string_view reason) = 0;
  // After fail(): lets go of the round under way. When it returns, no peer reads this rank's memory any more.
  virtual void abandon() {}
  // The reason when the group has failed, else "". Any thread.
  virtual std::string failure() const = 0;
};

}  // namespace tutti::comm
