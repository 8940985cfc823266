// The contents of packets. All ranks of a group must run the same version on the same kind of machine; hello packets
// verify this.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/diagnose/call_record.h"

namespace tutti::comm {

inline constexpr int64_t kWireVersion = 0x7475747469000004;  // a change of layout changes it

enum class PacketKind : uint32_t {
  hello,           // first from each rank to each: number = kWireVersion, tag = pid, body = host
  round,           // RoundHead, tables when the record asks for them, then the offer itself when it is small
  data,            // of round `number`: a part of the offer, at `offset`
  grant,           // of round `number`: data may come up to `offset`
  mail,            // a message with `tag`, `number` names it; its bytes follow when `offset` is 1
  mail_grant,      // message `number` of the receiver of this packet: data may come up to `offset`
  mail_skip,       // message `number`: send nothing more, nobody wants it
  mail_data,       // message `number`: a part at `offset`
  mail_withdrawn,  // message `number`: its sender cancelled it
  mail_refused,    // message `number` with `tag`, sent in `call`: its receiver refuses it, body = why
  mail_read,       // bytes of small messages read so far: `offset`
  fail,            // the group has ended, body = why; `number`: the round that was used wrongly, or 0
  leave,           // nothing comes from this rank any more
};
inline constexpr uint32_t kNumPacketKinds = static_cast<uint32_t>(PacketKind::leave) + 1;

struct alignas(64) PacketHead {
  PacketKind kind = PacketKind::hello;
  uint32_t tag = 0;
  int64_t number = 0;
  int64_t offset = 0;
  int64_t bytes = 0;        // of the whole that the packet is about or a part of
  DType dtype = DType::u8;  // of a message
  int64_t call = 0;         // of a message: number of the call that sends it
};
static_assert(sizeof(PacketHead) == 64);

struct alignas(64) RoundHead {
  uint64_t fingerprint = 0;
  int64_t offered = 0;  // by the sender of the packet to its receiver
  int64_t taken = 0;    // by the sender from the receiver
  CallRecord record;
};

// How many bytes may be under way to a rank that has not taken them yet, from all its peers together.
inline constexpr int64_t kWindowBytes = 8 << 20;
// Data flows in chunks; so many may be under way between two ranks.
inline constexpr int64_t kWindowChunks = 4;
inline constexpr int64_t kMaxHostBytes = 256;
inline constexpr int64_t kMaxReasonBytes = 2048;

constexpr int64_t round_up_64(int64_t n) { return (n + 63) / 64 * 64; }

// 4 KiB to 1 MiB, a multiple of 64.
constexpr int64_t chunk_bytes(int size) {
  const int64_t share = kWindowBytes / kWindowChunks / std::max(1, size - 1) / 64 * 64;
  return std::clamp<int64_t>(share, 4 << 10, 1 << 20);
}

// Offers and messages up to here travel with their head.
constexpr int64_t inline_bytes(int size) { return std::min<int64_t>(16 << 10, chunk_bytes(size)); }

// Every rank's table of what it offers to and takes from all peers, for calls whose sizes the record does not tell: so
// all ranks see the same mismatch and the group stays usable.
constexpr int64_t table_bytes(int size) {
  return round_up_64(2 * int64_t{size} * static_cast<int64_t>(sizeof(int64_t)));
}

constexpr int64_t max_packet_bytes(int size) {
  const int64_t with_offer = static_cast<int64_t>(sizeof(RoundHead)) + table_bytes(size) + inline_bytes(size);
  return static_cast<int64_t>(sizeof(PacketHead)) +
         std::max({with_offer, chunk_bytes(size), kMaxReasonBytes, kMaxHostBytes});
}

}  // namespace tutti::comm
