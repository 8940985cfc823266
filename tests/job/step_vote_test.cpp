#include "tutti/job/host/step_vote.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <thread>
#include <vector>

#include "tests/job/support/forked.h"
#include "tutti/core/error.h"
#include "tutti/job/host/liveness.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;
using Kind = Verdict::Kind;

constexpr auto kNever = [] { return false; };
std::chrono::steady_clock::time_point soon() { return std::chrono::steady_clock::now() + 30s; }

struct SharedArea {
  SharedArea()
      : area(static_cast<StepVote::Area*>(
            mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}
  ~SharedArea() { munmap(area, 4096); }
  StepVote::Area* area;
};

TEST(StepVote, CommitsAStepThatAllHavePrepared) {
  SharedArea shared;
  StepVote vote(*shared.area);
  EXPECT_EQ(vote.verdict(), Verdict{});
  vote.begin(4);
  for (int r = 0; r < 3; ++r) vote.prepare(r, 1, 5);
  EXPECT_EQ(vote.decide(3, 1, 5, kNever, soon()), (Verdict{Kind::committed, 5, 0}));
  // The next step begins from there.
  for (int r = 0; r < 3; ++r) EXPECT_FALSE(vote.is_prepared(r, 1, 6));
}

TEST(StepVote, AbortsAStepWhoseRankIsLost) {
  SharedArea shared;
  StepVote vote(*shared.area);
  vote.begin(4);
  vote.prepare(0, 1, 5);
  EXPECT_EQ(vote.decide(2, 1, 5, [] { return true; }, soon()), (Verdict{Kind::aborted, 5, 1}));
  // The next team repeats it; a mark of the team before does not count.
  vote.prepare(1, 1, 5);
  vote.prepare(0, 2, 5);
  EXPECT_EQ(vote.decide(1, 2, 5, kNever, soon()), (Verdict{Kind::committed, 5, 0}));
}

TEST(StepVote, ARankThatDiedAfterItPreparedDoesNotUndoTheStep) {
  SharedArea shared;
  StepVote vote(*shared.area);
  vote.begin(0);
  vote.prepare(0, 7, 1);
  vote.prepare(1, 7, 1);
  EXPECT_EQ(vote.decide(2, 7, 1, [] { return true; }, soon()).kind, Kind::committed);
}

TEST(StepVote, GivesUpAtTheDeadline) {
  SharedArea shared;
  StepVote vote(*shared.area);
  vote.begin(4);
  vote.prepare(0, 1, 5);
  EXPECT_EQ(vote.decide(2, 1, 5, kNever, std::chrono::steady_clock::now() + 20ms), (Verdict{Kind::committed, 4, 0}));
}

// One of four processes is killed at another moment in each round; the others must read one verdict, whichever it is.
TEST(StepVote, ForkedRanksReadOneVerdictWhenOneIsKilled) {
  int commits = 0, aborts = 0;
  for (int round = 0; round < 24; ++round) {
    SharedArea shared;
    StepVote(*shared.area).begin(round);
    pid_t* const pids = reinterpret_cast<pid_t*>(shared.area + 1);
    int64_t* const read = reinterpret_cast<int64_t*>(pids + 4);
    const std::vector<int> statuses = run_in_processes(
        4,
        [&](int rank) {
          StepVote vote(*shared.area);
          while (pids[3] == 0) std::this_thread::yield();
          Liveness liveness({pids[0], pids[1], pids[2], pids[3]});
          std::this_thread::sleep_for(std::chrono::microseconds(100 * ((rank + round) % 4)));
          if (rank == 2 && round % 2 == 0) raise(SIGKILL);
          vote.prepare(rank, 1, round + 1);
          if (rank == 2) raise(SIGKILL);
          const Verdict verdict = vote.decide(4, 1, round + 1, [&] { return liveness.find_dead() >= 0; }, soon());
          read[rank] = static_cast<int64_t>(verdict.kind) * 1000 + verdict.step;
        },
        [&](int rank, pid_t pid) { pids[rank] = pid; });
    for (const size_t rank : {0u, 1u, 3u}) EXPECT_EQ(statuses[rank], 0) << rank;
    EXPECT_EQ(read[0], read[1]);
    EXPECT_EQ(read[0], read[3]);
    EXPECT_EQ(read[0] % 1000, round + 1);
    if (round % 2 == 0) {
      EXPECT_EQ(read[0] / 1000, static_cast<int64_t>(Kind::aborted));
    }
    (read[0] / 1000 == static_cast<int64_t>(Kind::committed) ? commits : aborts) += 1;
  }
  EXPECT_GE(aborts, 12);
  EXPECT_EQ(commits + aborts, 24);
}

}  // namespace
}  // namespace tutti::comm
