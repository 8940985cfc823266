// StepVote: how the ranks of a host agree whether a step counts (docs/surviving.md).
//
// Each rank says that it has *prepared* step s: all that the step needs lies in memory that outlives it. One word of
// shared memory then goes, by one compare-and-swap, to *committed s*, by whoever sees that all have prepared, or to
// *aborted s*, by whoever sees first that a rank is lost. So all read one verdict, and a rank that dies at any moment
// leaves one behind. The area is zeros at first. Any number of threads and processes may use it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "tutti/runtime/function_ref.h"

namespace tutti::comm {

struct Verdict {
  enum class Kind : uint8_t { none, committed, aborted };
  Kind kind = Kind::none;
  int64_t step = 0;
  uint64_t team = 0;  // which aborted it
  bool operator==(const Verdict&) const = default;
};

class StepVote {
 public:
  static constexpr int kMaxRanks = 64;
  static constexpr int64_t kMaxStep = (int64_t{1} << 40) - 1;
  struct Area {
    std::atomic<uint64_t> word;
    std::atomic<uint32_t> bell;  // rings when something was said
    std::atomic<uint64_t> prepared[kMaxRanks];
  };

  // `area` must outlive this.
  explicit StepVote(Area& area) : area_(area) {}

  Verdict verdict() const;
  // The first word: the state of `step` is complete. Nobody votes meanwhile.
  void begin(int64_t step);
  // Rank `rank` of the team has prepared the step. From then on it must wait for the verdict.
  void prepare(int rank, uint64_t team, int64_t step);
  bool is_prepared(int rank, uint64_t team, int64_t step) const;
  // Returns the verdict about a step that this rank has prepared: committed, or aborted by this team. `has_lost_one`
  // tells whether a rank of the team is gone; it is asked again and again. Gives up at the deadline, with the verdict
  // of before, whose step is another one.
  Verdict decide(int ranks, uint64_t team, int64_t step, FunctionRef<bool()> has_lost_one,
                 std::chrono::steady_clock::time_point deadline);

 private:
  bool change(uint64_t from, const Verdict& to);
  Area& area_;
};

}  // namespace tutti::comm
