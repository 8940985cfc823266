// The group of those that are left; fault_suite_test.cpp makes it after a death over every transport.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/group_registry.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using namespace std::chrono_literals;

int64_t sum_of_world_ranks(ProcessGroup& group) {
  int64_t value = group.world_rank();
  group.all_reduce_values<int64_t>({&value, 1});
  return value;
}

template <class E>
std::string complaint(const std::function<void()>& call) {
  try {
    call();
    return "nothing was thrown";
  } catch (const E& error) {
    return error.what();
  }
}

TEST(Shrink, OneMoreDeathIsNamedAtOnce) {
  const auto results =
      run_world(3,
                [](ProcessGroup& group) {
                  group.barrier();
                  if (group.rank() == 1) raise(SIGKILL);
                  TUTTI_CHECK(complaint<PeerError>([&] { group.barrier(); }).find("rank 1 ") != std::string::npos,
                              "the death of rank 1 is not named");
                  if (group.rank() == 2) raise(SIGKILL);
                  group.shrink({1}, {.timeout = 5min});
                },
                {.limit = 20s});
  EXPECT_EQ(results[0].wait_status, 0);
  EXPECT_NE(results[0].error.find("died (its process is gone) while the group '0:shrink:1:[1]' was made"),
            std::string::npos)
      << results[0].error;
  EXPECT_EQ(results[0].error.find("rank 2 (pid "), 0u) << "as the group that shrinks calls it: " << results[0].error;
}

TEST(Shrink, AGroupThatEndedWithoutADeathIsMadeAnew) {
  run_ranks(3, [](ProcessGroup& group) {
    group.barrier();
    group.abort("enough");
    EXPECT_THROW(group.barrier(), PeerError);
    EXPECT_EQ(sum_of_world_ranks(*group.shrink({})), 3);
  });
}

TEST(Shrink, ListsThatDifferAreNamedOnAllSurvivors) {
  run_ranks(4, [](ProcessGroup& group) {
    const int me = group.rank();
    if (me != 3) {
      const std::string text =
          complaint<UsageError>([&] { group.shrink(me == 0 ? std::vector<int>{3} : std::vector<int>{3, 3, 2}); });
      const char* expected[] = {"rank 0 leaves out [3], rank 1 leaves out [2,3]; give the same list on all survivors",
                                "rank 1 leaves out [2,3], rank 0 leaves out [3]; give the same list on all survivors",
                                "rank 2 leaves out itself; only survivors call"};
      EXPECT_EQ(text, std::string("shrink of group '0': ") + expected[me]);
    }
    group.barrier();
    EXPECT_EQ(complaint<UsageError>([&] { group.shrink({4}); }),
              "shrink of group '0': rank 4 is out of range; legal: 0 to 3");
    group.barrier();
    if (me == 0) {
      const std::string text = complaint<TimeoutError>([&] { group.shrink({2}, {.timeout = 20ms}); });
      for (const char* part : {"shrink of group '0': rank 1 (pid ", "rank 3 (pid ", "did not call it within 20 ms"}) {
        EXPECT_NE(text.find(part), std::string::npos) << text;
      }
    }
    group.barrier();
  });
}

}  // namespace
}  // namespace tutti::comm
