// Ranks that share memory and are killed inside calls that are cut into parts and pieces, and at random: the others
// hear of it at once, with all that is known, and nothing is left behind. fault_suite_test.cpp has what holds over
// every transport.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <new>
#include <random>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/sample_calls.h"
#include "tests/comm/support/traces.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using std::chrono::microseconds;
using ::testing::TestWithParam;
using Kind = CollectiveKind;

constexpr int kRanks = 4;
// Far below any deadline of a call; a busy machine takes its share of it.
constexpr std::chrono::seconds kWithin{5};

// What the ranks of a run tell the test while they run.
struct Board {
  std::atomic<int64_t> died{0};  // ticks of the clock; 0: not
  std::atomic<int64_t> ended[8] = {};
  std::atomic<int64_t> calls[8] = {};  // that a rank has finished
};

class SharedBoard {
 public:
  SharedBoard() : memory_(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    TUTTI_CHECK_ENV(memory_ != MAP_FAILED, "no memory for the test");
    new (memory_) Board();
  }
  ~SharedBoard() { munmap(memory_, sizeof(Board)); }
  SharedBoard(const SharedBoard&) = delete;
  SharedBoard& operator=(const SharedBoard&) = delete;
  Board* operator->() const { return static_cast<Board*>(memory_); }

 private:
  void* memory_;
};

int64_t now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

struct Killing {
  Kind kind = Kind::barrier;
  int64_t count = 5;
  int ranks = kRanks;
  int victim = 2;
  microseconds delay{0};
  bool by_itself = true;  // else the parent kills it
  int64_t slot_bytes = 4096;
};

std::string describe(const Killing& run) {
  return fmt::format("{} of {} values on {} ranks, rank {} killed {} after {} us", name_of(run.kind), run.count,
                     run.ranks, run.victim, run.by_itself ? "by itself" : "by its parent", run.delay.count());
}

// Everybody makes the call again and again until it throws; the victim is killed meanwhile.
void expect_named_in_time(const Killing& run) {
  SCOPED_TRACE(describe(run));
  SharedBoard board;
  pid_t victim_pid = 0;
  const auto kill_now = [&](pid_t pid) {
    board->died = now();
    kill(pid, SIGKILL);
  };
  const auto rank_main = [&](ProcessGroup& group) {
    const SampleCall call = sample_call(group, run.kind, {.count = run.count, .root = group.size() - 1});
    std::jthread killer;
    if (run.by_itself && group.rank() == run.victim) {
      killer = std::jthread([&] {
        std::this_thread::sleep_for(run.delay);
        kill_now(getpid());
      });
    }
    try {
      while (true) {
        call.make();
        ++board->calls[group.rank()];
      }
    } catch (...) {
      board->ended[group.rank()] = now();
      throw;
    }
  };
  const auto meanwhile = [&](const std::vector<pid_t>& pids) {
    victim_pid = pids[static_cast<size_t>(run.victim)];
    if (run.by_itself) return;
    std::this_thread::sleep_for(run.delay);
    kill_now(victim_pid);
  };
  const auto results = run_forked(
      run.ranks, rank_main, {.slot_bytes = run.slot_bytes, .limit = std::chrono::seconds(20), .meanwhile = meanwhile});
  for (int r = 0; r < run.ranks; ++r) {
    const ForkedResult& result = results[static_cast<size_t>(r)];
    if (r == run.victim) {
      EXPECT_TRUE(WIFSIGNALED(result.wait_status) && WTERMSIG(result.wait_status) == SIGKILL)
          << result.wait_status << " " << result.error;
      continue;
    }
    EXPECT_EQ(result.wait_status, 0) << "rank " << r << " hung";
    EXPECT_LT(board->ended[r] - board->died, std::chrono::nanoseconds(kWithin).count())
        << "rank " << r << ": " << result.error;
    const auto says = [&](const std::string& part) { return result.error.find(part) != std::string::npos; };
    EXPECT_TRUE(says(fmt::format("rank {} (pid {} on ", run.victim, victim_pid)))
        << "rank " << r << ": " << result.error;
    EXPECT_TRUE(says("died (its process is gone)") && (says("waited for it in ") || says("was sending to it in ")) &&
                says("of group '0'"))
        << "rank " << r << ": " << result.error;
    bool named = false;
    for (const std::string& name : names_of_call(run.kind)) named |= says(name);
    EXPECT_TRUE(named) << "rank " << r << ": " << result.error;
  }
}

class KilledInParts : public TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(In, KilledInParts, ::testing::ValuesIn(all_kinds()),
                         [](const auto& info) { return std::string(name_of(info.param)); });

TEST_P(KilledInParts, ARankIsNamedByAllOthers) {
  const Traces before = look_for_traces();
  // In many parts, in several pieces (reductions of more than 2 MiB).
  expect_named_in_time({.kind = GetParam(), .count = 20'000, .victim = 3, .delay = microseconds(2500)});
  expect_named_in_time(
      {.kind = GetParam(), .count = 600'000, .victim = 1, .delay = microseconds(30'000), .slot_bytes = 256 << 10});
  EXPECT_EQ(left_behind(before), "");
}

class KilledAtRandom : public TestWithParam<uint64_t> {};
INSTANTIATE_TEST_SUITE_P(Seeds, KilledAtRandom, ::testing::Range(uint64_t{1}, uint64_t{9}));

TEST_P(KilledAtRandom, TheOthersNeverHangAndNothingIsLeft) {
  const Traces before = look_for_traces();
  std::mt19937_64 random(GetParam());
  const auto below = [&](uint64_t n) { return static_cast<int>(random() % n); };
  constexpr int64_t kCounts[] = {0, 1, 5, 22, 100, 3000, 20'000};
  for (int i = 0; i < 25; ++i) {
    Killing run{.kind = static_cast<Kind>(below(kNumCollectiveKinds)),
                .count = kCounts[below(std::size(kCounts))],
                .ranks = 2 + below(4)};
    run.victim = below(static_cast<uint64_t>(run.ranks));
    run.delay = microseconds(below(5000));
    run.by_itself = below(2) == 0;
    expect_named_in_time(run);
    if (HasFailure()) FAIL() << "seed " << GetParam() << ", run " << i << ": " << describe(run);
  }
  EXPECT_EQ(left_behind(before), "");
}

// One more call after everybody's part of it was there.
void expect_finished_despite(const char* what, const std::function<void(ProcessGroup&, const CallOptions&)>& call) {
  SCOPED_TRACE(what);
  SharedBoard board;
  const auto results =
      run_forked(kRanks,
                 [&](ProcessGroup& group) {
                   group.barrier();
                   if (group.rank() == 1) {
                     call(group, {.async = true});  // says its part, and waits for nobody
                     raise(SIGKILL);
                   }
                   std::this_thread::sleep_for(std::chrono::milliseconds(60));  // longer than peers are left alone
                   call(group, {});
                   ++board->calls[group.rank()];
                   group.barrier();
                 },
                 {.limit = std::chrono::seconds(20)});
  for (const int r : {0, 2, 3}) {
    EXPECT_EQ(board->calls[r], 1) << "rank " << r << " should have finished: " << results[static_cast<size_t>(r)].error;
    EXPECT_NE(results[static_cast<size_t>(r)].error.find("rank 1 (pid "), std::string::npos)
        << results[static_cast<size_t>(r)].error;
    EXPECT_NE(results[static_cast<size_t>(r)].error.find("barrier #3"), std::string::npos)
        << results[static_cast<size_t>(r)].error;
  }
}

TEST(Faults, ACallWhosePartsAreAllThereSucceedsThoughARankDied) {
  expect_finished_despite("barrier", [](ProcessGroup& g, const CallOptions& o) { g.barrier(o); });
  expect_finished_despite("all_reduce", [](ProcessGroup& g, const CallOptions& o) {
    const Tensor t = Tensor::of<int64_t>({g.rank(), 1});
    g.all_reduce(t, {}, o);
    if (!o.async) TUTTI_CHECK(t.data<int64_t>()[0] == 6, "the sum is {}", t.data<int64_t>()[0]);
  });
  expect_finished_despite("all_gather_single", [](ProcessGroup& g, const CallOptions& o) {
    const Tensor all = Tensor::empty({4 * 200}, DType::i64);
    g.all_gather_single(all, filled(g.rank(), {200}, DType::i64), o);
    if (!o.async)
      TUTTI_CHECK(checksum({all.view_as({200}, {1}, 200)}) == checksum({filled(1, {200}, DType::i64)}), "other values");
  });
  expect_finished_despite("broadcast from it", [](ProcessGroup& g, const CallOptions& o) {
    const Tensor t = Tensor::of<int64_t>({g.rank()});
    g.broadcast(t, 1, o);
    if (!o.async) TUTTI_CHECK(t.item_int() == 1, "it says {}", t.item_int());
  });
  expect_finished_despite("all_to_all_v_single", [](ProcessGroup& g, const CallOptions& o) {
    const std::vector<int64_t> one(4, 1);
    const Tensor out = Tensor::of<int64_t>({9, 9, 9, 9});
    g.all_to_all_v_single(out, Tensor::of<int64_t>({g.rank(), g.rank(), g.rank(), g.rank()}), one, one, o);
    if (!o.async) TUTTI_CHECK(out.data<int64_t>()[1] == 1, "it says {}", out.data<int64_t>()[1]);
  });
}

TEST(Faults, AMessageThatWasSentArrivesThoughTheSenderDied) {
  const auto results = run_forked(2,
                                  [](ProcessGroup& group) {
                                    if (group.rank() == 1) {
                                      group.send(Tensor::of<int64_t>({41, 42}), 0, 7);
                                      raise(SIGKILL);
                                    }
                                    std::this_thread::sleep_for(std::chrono::milliseconds(80));
                                    const Tensor t = Tensor::of<int64_t>({0, 0});
                                    group.recv(t, 1, 7);
                                    TUTTI_CHECK(t.data<int64_t>()[1] == 42, "it says {}", t.data<int64_t>()[1]);
                                  },
                                  {.limit = std::chrono::seconds(20)});
  EXPECT_TRUE(results[0].succeeded()) << results[0].error;
}

// Bytes that nobody receives must not look like something to do, or the waiting rank neither sleeps nor looks around.
TEST(Faults, ADeathIsNoticedWithAMessageWaitingUnread) {
  SharedBoard board;
  const auto results = run_forked(2,
                                  [&](ProcessGroup& group) {
                                    if (group.rank() == 1) {
                                      group.send(Tensor::of<int64_t>({41}), 0, 7);
                                      board->died = now();
                                      raise(SIGKILL);
                                    }
                                    try {
                                      group.barrier();
                                    } catch (const EnvironmentError&) {
                                      board->ended[0] = now();
                                      throw;
                                    }
                                  },
                                  {.limit = std::chrono::seconds(10)});
  EXPECT_NE(results[0].error.find("rank 1 (pid "), std::string::npos)
      << results[0].wait_status << " " << results[0].error;
  EXPECT_LT(board->ended[0] - board->died, std::chrono::nanoseconds(kWithin).count());
}

}  // namespace
}  // namespace tutti::comm
