// The memory that the ranks of one host share: control words and one staging slot per rank.
//
// It is an anonymous memory file. Ranks that are processes inherit its descriptor from the launcher; ranks that are
// threads share the object. Nothing is left behind in the file system when every rank is gone, however it went.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace tutti::comm {

constexpr int kMaxRanks = 64;

// What a rank says it is about to do. All ranks of a collective must say the same.
struct ShmCall {
  uint32_t op = 0;
  uint32_t dtype = 0;
  int64_t count = 0;
  int64_t root = 0;
};

enum class ShmPresence : uint32_t { kAbsent, kPresent, kLeft };

// Written by its own rank only (and `pid` by the launcher too, so that a rank that dies before it attaches is noticed).
struct alignas(128) ShmRankBlock {
  std::atomic<pid_t> pid;
  std::atomic<ShmPresence> presence;
  std::atomic<uint32_t> arrived;  // number of the newest meeting this rank came to
  // Call n stands in calls[n % 2]: a fast rank writes call n+1 while a slow one still compares call n, and nobody
  // reaches n+2 before all compared n.
  ShmCall calls[2];
};

struct ShmHeader {
  uint64_t magic;
  uint32_t world_size;
  int64_t chunk_bytes;
  alignas(128) std::atomic<uint32_t> generation;  // futex: number of finished meetings
  alignas(128) std::atomic<uint32_t> arrivals;    // ranks present at the current meeting
  alignas(128) std::atomic<uint32_t> failure;     // 0 none, 1 being written, 2 readable
  char failure_text[1024];
  ShmRankBlock ranks[kMaxRanks];
};

class ShmSegment {
 public:
  // A fresh segment for `world_size` ranks (1 to 64); each stages `chunk_bytes` at a time (a multiple of 64).
  static std::shared_ptr<ShmSegment> create(int world_size, int64_t chunk_bytes = int64_t{4} << 20);
  // Maps a segment made by another process. EnvironmentError when `fd` is not one.
  static std::shared_ptr<ShmSegment> open(int fd);
  ~ShmSegment();
  ShmSegment(const ShmSegment&) = delete;
  ShmSegment& operator=(const ShmSegment&) = delete;

  int fd() const { return fd_; }
  int world_size() const { return static_cast<int>(header().world_size); }
  ShmHeader& header() const { return *static_cast<ShmHeader*>(base_); }
  // Where rank r stages its chunk.
  std::byte* slot(int rank) const;
  // Where finished chunks are gathered.
  std::byte* result() const { return slot(world_size()); }
  // Says that `pid` is rank `rank`; the launcher calls it as soon as it has started the process.
  void announce(int rank, pid_t pid);

 private:
  ShmSegment(int fd, void* base, size_t nbytes) : fd_(fd), base_(base), nbytes_(nbytes) {}
  int fd_;
  void* base_;
  size_t nbytes_;
};

}  // namespace tutti::comm
