// Ranks that are stopped, leave early, or throw: how the others notice, and what becomes of them.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <thread>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/sample_calls.h"
#include "tests/comm/support/traces.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transport.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;

void expect_says_all(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
}

TEST(AbsentRanks, OneThatIsStoppedPastTheDeadlineIsNamedAndHearsOfItWhenItGoesOn) {
  const Traces before = look_for_traces();
  pid_t stopped = 0;
  const auto results = run_forked(4,
                                  [](ProcessGroup& group) {
                                    group.barrier();
                                    if (group.rank() == 2) raise(SIGSTOP);
                                    const Tensor t = Tensor::of<float>({1, 2});
                                    group.all_reduce(t, {}, {.timeout = milliseconds(300)});
                                  },
                                  {.limit = std::chrono::seconds(20), .meanwhile = [&](const std::vector<pid_t>& pids) {
                                     stopped = pids[2];
                                     int status = 0;
                                     ASSERT_EQ(waitpid(stopped, &status, WUNTRACED), stopped);
                                     ASSERT_TRUE(WIFSTOPPED(status));
                                     std::this_thread::sleep_for(milliseconds(500));
                                     kill(stopped, SIGCONT);
                                   }});
  for (const int r : {0, 1, 2, 3}) {
    SCOPED_TRACE(r);
    EXPECT_EQ(results[static_cast<size_t>(r)].wait_status, 0);
    expect_says_all(results[static_cast<size_t>(r)].error,
                    {fmt::format("rank 2 (pid {} on ", stopped), "did not finish within 300 ms",
                     "collective #2 of group '0', all_reduce(f32 [2], sum)", "its last call was #1, barrier()"});
  }
  EXPECT_EQ(left_behind(before), "");
}

TEST(AbsentRanks, OneThatIsStoppedForLessThanTheDeadlineIsWaitedFor) {
  const auto results = run_forked(3,
                                  [](ProcessGroup& group) {
                                    for (int i = 0; i < 2000; ++i) {
                                      int64_t value = 1;
                                      group.all_reduce_values<int64_t>({&value, 1});
                                      TUTTI_CHECK(value == 3, "the sum is {}", value);
                                    }
                                  },
                                  {.limit = std::chrono::seconds(20), .meanwhile = [](const std::vector<pid_t>& pids) {
                                     for (int i = 0; i < 3; ++i) {
                                       kill(pids[1], SIGSTOP);
                                       std::this_thread::sleep_for(milliseconds(80));
                                       kill(pids[1], SIGCONT);
                                       std::this_thread::sleep_for(milliseconds(5));
                                     }
                                   }});
  for (const ForkedResult& result : results) EXPECT_TRUE(result.succeeded()) << result.error;
}

TEST(AbsentRanks, OneThatExitsWithStatusZeroIsNamed) {
  const auto results = run_forked(4,
                                  [](ProcessGroup& group) {
                                    group.barrier();
                                    if (group.rank() == 3) _exit(0);
                                    group.all_gather_bytes("some");
                                  },
                                  {.limit = std::chrono::seconds(20)});
  EXPECT_EQ(results[3].wait_status, 0);
  for (const size_t r : {0, 1, 2})
    expect_says_all(results[r].error, {"rank 3 (pid ", "its process is gone", "all_gather_single #2 of group '0'"});
}

TEST(AbsentRanks, OneThatThrowsIsNamed) {
  const auto results = run_forked(4,
                                  [](ProcessGroup& group) {
                                    group.barrier();
                                    TUTTI_CHECK(group.rank() != 1, "no luck");
                                    group.monitored_barrier(std::chrono::seconds(10));
                                  },
                                  {.limit = std::chrono::seconds(20)});
  EXPECT_EQ(results[1].error, "no luck");
  for (const size_t r : {0, 2, 3})
    expect_says_all(results[r].error, {"rank 1 (pid ", "left the group", "monitored_barrier #1 of group '0'"});
}

// Messages concern two ranks; those who wait for neither hear of it at their next call.
TEST(AbsentRanks, OneThatOwesAMessageIsNamedWithTheMessage) {
  const auto results = run_forked(3,
                                  [](ProcessGroup& group) {
                                    if (group.rank() == 2) raise(SIGKILL);
                                    const Tensor t = Tensor::of<float>({1, 2});
                                    if (group.rank() == 0) group.recv(t, 2, 8);
                                    while (group.health().ok) std::this_thread::sleep_for(milliseconds(1));
                                    group.send(t, 0, 8);
                                    group.barrier();
                                  },
                                  {.limit = std::chrono::seconds(20)});
  for (const size_t r : {0, 1})
    expect_says_all(results[r].error, {"rank 2 (pid ", "died", "while rank 0 waited for it in recv #1 of group '0'"});
}

TEST(AbsentRanks, AMessageFromAnybodyMayStillComeWhenSomeHaveLeft) {
  const auto results =
      run_forked(3,
                 [](ProcessGroup& group) {
                   if (group.rank() == 2) return;
                   const Tensor t = Tensor::of<int64_t>({group.rank()});
                   if (group.rank() == 1) {
                     std::this_thread::sleep_for(milliseconds(200));
                     group.send(t, 0, 8);
                     group.recv(t, 0, 9);
                     return;
                   }
                   const Work any = group.recv_any(t, 8);
                   any.wait();
                   TUTTI_CHECK(any.source_rank() == 1 && t.item_int() == 1, "from rank {}", any.source_rank());
                   group.send(t, 1, 9);
                   group.recv_any(t, 8).wait();
                 },
                 {.limit = std::chrono::seconds(20)});
  EXPECT_TRUE(results[1].succeeded()) << results[1].error;
  expect_says_all(results[0].error, {"left the group", "while rank 0 waited for it in recv #3"});
}

// Peers read a thread's memory where it is: who gives up must not free it under them.
TEST(AbsentRanks, AThreadThatGivesUpLeavesItsMemoryUntilNobodyReadsIt) {
  for (int i = 0; i < 12; ++i) {
    EXPECT_THROW(run_ranks(3,
                           [i](ProcessGroup& group) {
                             std::jthread stopper;
                             if (group.rank() == 1) {
                               stopper = std::jthread([&group, i] {
                                 std::this_thread::sleep_for(std::chrono::microseconds(500 + 1700 * i));
                                 group.abort("enough");
                               });
                             }
                             while (true) {
                               const Tensor mine = filled(0, {3 << 18}, DType::f32), all = Tensor::empty({9 << 18});
                               group.all_gather_single(all, mine);
                             }
                           }),
                 EnvironmentError);
  }
}

}  // namespace
}  // namespace tutti::comm
