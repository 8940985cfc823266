// Segment: the layout and mapping of the memory that the ranks of one group share.
//
// [header | one RankArea per rank | one Pipe per ordered pair of ranks | two slots per rank]. Pages that are never
// accessed take no memory. A segment is an anonymous file, which is freed with the last rank.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tutti/diagnose/call_record.h"

namespace tutti::comm {

inline constexpr int kMaxShmRanks = 64;
inline constexpr int64_t kInlineBytes = 88;
inline constexpr int64_t kPipeBytes = 64 << 10;
inline constexpr uint64_t kKeptRefusals = 16;

// A record that may be read while it is being written; the reader checks afterwards whether that happened.
class SharedRecord {
 public:
  void store(const CallRecord& record);
  CallRecord load() const;

 private:
  static constexpr size_t kWords = (sizeof(CallRecord) + 7) / 8;
  std::atomic<uint64_t> words_[kWords];
};

enum class OfferMode : uint8_t {
  in_line,  // the bytes stand in the line
  staged,   // in the slot of this meeting, part by part
  direct,   // where they are: peers read them there
  pulled,   // in the memory of the owner's process: peers have the kernel copy them
};

// The place of an offer that is read in place: byte `offset` of region `region` (ShmTransport::add_region), or address
// `offset` of the common address space or, where it is pulled, of the owner's process.
struct DirectBlock {
  uint64_t region;
  uint64_t offset;
};

// Each rank publishes a Line at each meeting. Meeting k uses lines[k % 2]: a rank that reaches meeting k+2 has seen
// every rank at k+1, so all have read the lines of meeting k.
struct alignas(128) Line {
  std::atomic<uint64_t> meeting;  // written last
  uint64_t fingerprint;
  int64_t stride;  // in_line: bytes from the block of one peer to the next; 0 when there is one block for all
  uint32_t parts;  // staged: meetings this rank needs for its offer
  OfferMode mode;
  bool one_block;
  std::atomic<uint16_t> core;  // where the rank was running
  std::byte data[kInlineBytes];
};
static_assert(sizeof(Line) == 128);

enum class Presence : uint32_t { absent, present, left };

struct alignas(128) RankArea {
  Line lines[2];
  alignas(128) std::atomic<uint64_t> consumed;  // the last meeting whose offers this rank has taken
  std::atomic<uint32_t> reading;                // threads: it is reading in place right now
  alignas(128) std::atomic<uint32_t> asleep;
  std::atomic<uint32_t> doorbell;  // futex of this rank
  alignas(128) std::atomic<pid_t> pid;
  std::atomic<Presence> presence;
  std::atomic<uint64_t> record_meeting;  // meeting of the newest record
  SharedRecord records[2];
  // Per meeting: what this rank offers to and takes from each peer, where the record alone does not tell.
  int64_t offers[2][kMaxShmRanks];
  int64_t takes[2][kMaxShmRanks];
  DirectBlock blocks[2][kMaxShmRanks];
  // For PeerMemory: a number that only this rank's process has at that address, and the ranks whose numbers this rank
  // could read.
  uint64_t secret;
  uint64_t secret_at;
  std::atomic<uint64_t> readable;
};

// A message that its receiver refuses, as the receiver tells the sender.
struct RefusedMessage {
  uint64_t number;  // among the messages of the pipe that it came through
  int64_t call;     // of the sender
  int64_t sent_bytes;
  int64_t received_bytes;
  uint32_t tag;
  DType sent;
  DType received;
};

// A ring buffer of bytes from one rank to another, and flags next to it, because the ring may be full.
struct alignas(128) Pipe {
  std::atomic<uint64_t> written;
  std::atomic<uint32_t> is_withdrawn;  // the message that is partly written will not become whole
  // Refusals by the writer of messages that came from the reader: how many of them have been put into `refusals`, and
  // how many did not fit because the reader had not looked for long; the reader takes both.
  std::atomic<uint64_t> refusals_written;
  std::atomic<uint64_t> refusals_lost;
  alignas(128) std::atomic<uint64_t> read;
  std::atomic<uint64_t> refusals_read;
  alignas(128) std::byte data[kPipeBytes];
  RefusedMessage refusals[kKeptRefusals];
};

struct SegmentHeader {
  uint64_t magic;
  uint32_t world_size;
  int64_t slot_bytes;
  std::atomic<uint32_t> failure;  // 0 none, 1 being written, 2 readable
  char failure_text[2000];
  alignas(128) std::atomic<uint32_t> sleepers;
};

class Segment {
 public:
  // Creates a segment for `world_size` ranks (1 to 64), each with two slots of `slot_bytes` (a multiple of 4096).
  static std::shared_ptr<Segment> create(int world_size, int64_t slot_bytes = 256 << 10);
  // Maps a segment created by another process; takes ownership of `fd`. EnvironmentError when it has another version.
  static std::shared_ptr<Segment> open(int fd);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Needed until every rank has mapped the segment; close_fd() afterwards.
  int fd() const { return fd_; }
  void close_fd();
  int world_size() const { return static_cast<int>(header().world_size); }
  int64_t slot_bytes() const { return header().slot_bytes; }
  SegmentHeader& header() const { return *reinterpret_cast<SegmentHeader*>(base_); }
  RankArea& area(int rank) const { return areas_[rank]; }
  Pipe& pipe(int from, int to) const { return pipes_[from * world_size() + to]; }
  std::byte* slot(int rank, uint64_t meeting) const {
    return slots_ + (rank * 2 + static_cast<int>(meeting & 1)) * slot_bytes();
  }

  // Ends the group: the first reason wins. Any thread, any rank.
  void fail(std::string_view reason);
  std::string failure() const;

 private:
  Segment(int fd, std::byte* base, size_t nbytes);
  int fd_;
  std::byte* base_;
  size_t nbytes_;
  RankArea* areas_ = nullptr;
  Pipe* pipes_ = nullptr;
  std::byte* slots_ = nullptr;
};

}  // namespace tutti::comm
