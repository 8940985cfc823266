// MessageEngine: the minimal interface of a network for a group: packets that are ordered between two ranks, and notice
// of ranks that can no longer be reached.
//
// Everything above packets (matching of tags, flow control, cancelling, comparing calls) is implemented once, by
// MessageTransport. An engine copies what it sends, because a message may be cancelled, and its memory freed, at any
// time, while no network can take back a send. The data that a rank has not taken yet is bounded by the transport's
// windows.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <string>

#include "tutti/comm/transport.h"

namespace tutti::comm {

struct FreeAligned {
  void operator()(std::byte* p) const { ::operator delete[](p, std::align_val_t{64}); }
};
// Bytes at a multiple of 64.
using PacketMemory = std::unique_ptr<std::byte[], FreeAligned>;
inline PacketMemory allocate_packet(int64_t bytes) {
  return PacketMemory(static_cast<std::byte*>(::operator new[](static_cast<size_t>(bytes), std::align_val_t{64})));
}

struct Packet {
  int from = -1;
  int64_t bytes = 0;
  PacketMemory memory;
  int64_t start = 0;  // where the packet begins in its memory, a multiple of 64: engines put addresses in front

  const std::byte* data() const { return memory.get() + start; }
};

class MessageEngine {
 public:
  virtual ~MessageEngine() = default;
  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // Sends the parts as one packet of at most max_packet_bytes(size()). The parts may be modified as soon as it returns.
  // Never waits for the peer and never fails: what cannot be sent is dropped, and lost() says why. Any thread.
  virtual void send(int to, std::span<const ConstBlock> parts) = 0;
  // Waits until all that was sent is with the network, for `limit` at most. Any thread but the engine's own.
  virtual void flush(std::chrono::milliseconds /*limit*/) {}
  // The next packet that has arrived, from any rank; false when there is none. Called by one thread at a time, like
  // wait().
  virtual bool take(Packet& packet) = 0;
  // Returns the memory of a packet for reuse. Any thread.
  virtual void recycle(Packet&& packet) = 0;
  // Returns when a packet may be there or the news about the lost may have changed, after `limit` at the latest.
  virtual void wait(std::chrono::microseconds limit) = 0;
  // Why nothing comes from `rank` any more, e.g. "its connection was closed"; "" while it can be reached. Packets that
  // came before the loss are taken first. Any thread.
  virtual std::string lost(int rank) const = 0;
};

}  // namespace tutti::comm
