// Collectives between the local ranks of one host, over shared memory.
//
// Sums of floats are taken in tree order (tree_sum.h), so the result does not depend on timing and has the same bits
// as one process that adds all buffers itself. Large buffers travel in chunks: every rank copies its chunk to its
// slot, all meet, every rank reduces its share of the elements over all slots, all meet, everybody copies the result.
// Bytes moved per rank for n bytes: 2n copied, n read for the reduction (n/R elements from R slots).
//
// Every call must be made by all ranks, in the same order, with the same element count. A mismatch throws UsageError
// on all ranks, naming two ranks and the field, and leaves the group usable. A dead, departed or late rank throws
// EnvironmentError on all other ranks, naming it, the operation and its number, and ends the group.
//
// A group object belongs to one rank and is used by one thread at a time; abort() may be called by any thread.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "tutti/comm/shm_meeting.h"
#include "tutti/comm/shm_segment.h"

namespace tutti::comm {

struct ShmGroupOptions {
  // How long one operation waits for the slowest rank. Dead ranks are noticed at once, whatever this says.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
};

class ShmGroup {
 public:
  ShmGroup(std::shared_ptr<ShmSegment> segment, int rank, ShmGroupOptions options = {});

  int rank() const { return rank_; }
  int size() const { return size_; }

  // In place; every rank ends with the same bits.
  void all_reduce_sum_f32(std::span<float> values);
  // In place, wrapping like two's complement.
  void all_reduce_sum_i64(std::span<int64_t> values);
  // In place; a NaN on any rank wins.
  void all_reduce_max_f64(std::span<double> values);
  // Everybody ends with the bytes of rank `root`.
  void broadcast(std::span<std::byte> bytes, int root);
  // out = the `mine` of rank 0, 1, ...; out.size() is size() * mine.size().
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> out);
  // Returns when all ranks have called it.
  void barrier();

  // Releases every rank that waits in this group; they throw EnvironmentError with `reason`.
  void abort(std::string_view reason) { meeting_.fail(reason); }

 private:
  struct Chunk {
    int64_t offset;  // elements
    int64_t count;
  };
  // Copies a chunk of the user's data to this rank's slot.
  using Publish = std::function<void(Chunk)>;
  // Runs between two meetings: all slots hold their chunk.
  using Combine = std::function<void(Chunk)>;
  // Runs after the second meeting: the result area holds the finished chunk.
  using Finish = std::function<void(Chunk)>;

  void run(ShmCall call, int64_t element_bytes, const Publish& publish, const Combine& combine, const Finish& finish);
  template <class T, class Reduce>
  void all_reduce(uint32_t op, uint32_t dtype, std::span<T> values, const Reduce& reduce);
  void compare_calls() const;
  std::string describe(const ShmCall& call) const;

  std::shared_ptr<ShmSegment> segment_;
  int rank_;
  int size_;
  uint64_t sequence_ = 0;
  ShmMeeting meeting_;
};

}  // namespace tutti::comm
