// CallBoard: the ranks of a group publish which op they call, and detect before any data is used whether all call the
// same.
//
// Each rank has an area in symmetric memory that only it writes. At meeting k it writes a fingerprint to line k % 2 and
// then the number k; a rank that has seen the k of all ranks compares the fingerprints. A rank publishes k + 2 only
// when all have published k + 1, so a line is not overwritten before all have read it. A meeting is also a barrier:
// what a rank has written before is visible to all ranks after it. It costs each rank one line written and W - 1 read.
//
// After a mismatch or a refusal the group remains usable. A death, a timeout or an op that failed in the
// middle ends the board on all ranks, because it is then unknown what has been read. Calls must be made one at a time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/runtime/fork_guard.h"
#include "tutti/symm/group.h"
#include "tutti/symm/op_record.h"
#include "tutti/tensor/tensor.h"

namespace tutti::comm::symm {

class SymmHandle;

class CallBoard {
 public:
  // Collective over the group.
  explicit CallBoard(const SymmGroup& group);

  // Counts an op; PeerError when the board has ended, UsageError in a fork()ed child.
  void begin_op();
  // Says `record` and returns when all ranks have said the same: UsageError on all ranks when they have not. `numbers`,
  // W of them or none, are for the others to read (numbers_of) until this rank comes to the next meeting.
  void agree(const OpRecord& record, std::span<const int64_t> numbers = {});
  std::span<const int64_t> numbers_of(int rank) const;
  // Returns when all ranks have come.
  void meet();
  // Says that this rank does not make its call, because of `why`: the others throw that. Does not wait.
  void refuse(const OpRecord& record, const std::exception& why);
  // Ends the board: all others throw PeerError with `why` at this meeting or the next.
  void fail(std::string_view why);

 private:
  struct Line;
  struct Area;
  static constexpr uint64_t kRefused = 1, kMet = 2;  // fingerprints are even and other than these

  Area& area(int rank) const { return *reinterpret_cast<Area*>(areas_[static_cast<size_t>(rank)]); }
  Line& line(int rank) const;
  std::string title() const;
  void next_meeting();
  void publish(uint64_t word);
  void ring_all();
  void wait_for_all();
  void come(uint64_t word);
  [[noreturn]] void explain();

  const ForkGuard process_;
  const std::string group_;
  const std::chrono::milliseconds timeout_;
  const int rank_;
  const int size_;
  Tensor memory_;
  std::shared_ptr<SymmHandle> handle_;
  std::vector<std::byte*> areas_;
  uint64_t step_ = 0;         // the last meeting
  bool has_refused_ = false;  // at that meeting, so it did not wait for the others
  int64_t ops_ = 0;
  OpRecord record_;  // of the last op
  std::string failure_;
};

}  // namespace tutti::comm::symm
