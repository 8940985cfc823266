#include "tutti/job/host/step_vote.h"

#include <sched.h>

#include "tutti/core/error.h"
#include "tutti/runtime/futex.h"

namespace tutti::comm {
namespace {

constexpr int kStepBits = 40, kTeamBits = 22;
constexpr uint64_t kTeamMask = (uint64_t{1} << kTeamBits) - 1;
constexpr int kYieldsBeforeSleep = 100;
constexpr std::chrono::microseconds kNap{2000};

uint64_t word_of(const Verdict& v) {
  return static_cast<uint64_t>(v.kind) << (kStepBits + kTeamBits) | (v.team & kTeamMask) << kStepBits |
         static_cast<uint64_t>(v.step);
}

Verdict verdict_of(uint64_t word) {
  return {.kind = static_cast<Verdict::Kind>(word >> (kStepBits + kTeamBits)),
          .step = static_cast<int64_t>(word & static_cast<uint64_t>(StepVote::kMaxStep)),
          .team = word >> kStepBits & kTeamMask};
}

uint64_t mark_of(uint64_t team, int64_t step) { return (team & kTeamMask) << kStepBits | static_cast<uint64_t>(step); }

}  // namespace

Verdict StepVote::verdict() const { return verdict_of(area_.word.load(std::memory_order_acquire)); }

bool StepVote::change(uint64_t from, const Verdict& to) {
  const bool is_mine = area_.word.compare_exchange_strong(from, word_of(to), std::memory_order_acq_rel);
  area_.bell.fetch_add(1, std::memory_order_release);
  futex_wake_all(area_.bell);
  return is_mine;
}

void StepVote::begin(int64_t step) {
  TUTTI_ASSERT(step >= 0 && step <= kMaxStep, "step {}", step);
  area_.word.store(word_of({Verdict::Kind::committed, step, 0}), std::memory_order_release);
}

void StepVote::prepare(int rank, uint64_t team, int64_t step) {
  TUTTI_ASSERT(rank >= 0 && rank < kMaxRanks && step > 0 && step <= kMaxStep, "rank {}, step {}", rank, step);
  area_.prepared[rank].store(mark_of(team, step), std::memory_order_release);
  area_.bell.fetch_add(1, std::memory_order_release);
  futex_wake_all(area_.bell);
}

bool StepVote::is_prepared(int rank, uint64_t team, int64_t step) const {
  return area_.prepared[rank].load(std::memory_order_acquire) == mark_of(team, step);
}

Verdict StepVote::decide(int ranks, uint64_t team, int64_t step, FunctionRef<bool()> has_lost_one,
                         std::chrono::steady_clock::time_point deadline) {
  for (int attempt = 0;; ++attempt) {
    const uint32_t bell = area_.bell.load(std::memory_order_acquire);
    const uint64_t word = area_.word.load(std::memory_order_acquire);
    const Verdict now = verdict_of(word);
    if (now.step == step && (now.kind == Verdict::Kind::committed || now.team == (team & kTeamMask))) return now;
    bool all = true;
    for (int r = 0; r < ranks && all; ++r) all = is_prepared(r, team, step);
    // Prepared is prepared: a rank that has died since is not needed for this step any more.
    if (all) change(word, {Verdict::Kind::committed, step, 0});
    else if (attempt < kYieldsBeforeSleep) sched_yield();
    else if (has_lost_one()) change(word, {Verdict::Kind::aborted, step, team});
    else if (std::chrono::steady_clock::now() >= deadline)
      return {Verdict::Kind::committed, step - 1, 0};  // also where an earlier team has aborted this step
    else futex_wait(area_.bell, bell, kNap);
  }
}

}  // namespace tutti::comm
