// The group of those that are left after a rank has died.
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

void expect_survivors_go_on(const std::string& transport) {
  SCOPED_TRACE(transport);
  const auto results = run_world(4, [](ProcessGroup& group) {
    const std::string death = complaint<PeerError>([&] {
      group.barrier();  // a rank that is late in it may hear of the death here
      if (group.rank() == 1) raise(SIGKILL);
      group.barrier();
    });
    TUTTI_CHECK(death.find("rank 1 ") != std::string::npos, "the death of rank 1 is not named: {}", death);
    const auto left = group.shrink({1}, {.timeout = 20s});
    TUTTI_CHECK(left->world_ranks() == std::vector<int>({0, 2, 3}) && left->rank() == std::max(0, group.rank() - 1), "rank {} of other members", left->rank());
    TUTTI_CHECK(sum_of_world_ranks(*left) == 5 && GroupRegistry::current().resolve(left->name()) == left, "another sum");
    // And once more, by choice; ranks are those of the group that shrinks.
    if (group.rank() == 2) return left->barrier(), void();
    left->barrier();
    const auto pair = left->shrink({1}, {.name = "pair", .timeout = 20s});
    TUTTI_CHECK(pair->name() == "pair" && sum_of_world_ranks(*pair) == 3, "another sum");
  }, {.transport = transport, .limit = 30s});
  EXPECT_TRUE(WIFSIGNALED(results[1].wait_status));
  for (const size_t r : {0, 2, 3}) EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": status " << results[r].wait_status << " " << results[r].error;
}

TEST(Shrink, SurvivorsOfADeathGoOn) {
  expect_survivors_go_on("shm");
  for (const TransportInfo& info : known_transports()) {
    if (info.name == "gloo" && info.available) expect_survivors_go_on("gloo");
  }
}

TEST(Shrink, OneMoreDeathIsNamedAtOnce) {
  const auto results = run_world(3, [](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) raise(SIGKILL);
    TUTTI_CHECK(complaint<PeerError>([&] { group.barrier(); }).find("rank 1 ") != std::string::npos, "the death of rank 1 is not named");
    if (group.rank() == 2) raise(SIGKILL);
    group.shrink({1}, {.timeout = 5min});
  }, {.limit = 20s});
  EXPECT_EQ(results[0].wait_status, 0);
  EXPECT_NE(results[0].error.find("died (its process is gone) while the group '0:shrink:1:[1]' was made"), std::string::npos) << results[0].error;
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
      const std::string text = complaint<UsageError>([&] { group.shrink(me == 0 ? std::vector<int>{3} : std::vector<int>{3, 3, 2}); });
      const char* expected[] = {"rank 0 leaves out [3], rank 1 leaves out [2,3]; give the same list on all survivors",
                                "rank 1 leaves out [2,3], rank 0 leaves out [3]; give the same list on all survivors",
                                "rank 2 leaves out itself; only survivors call"};
      EXPECT_EQ(text, std::string("shrink of group '0': ") + expected[me]);
    }
    group.barrier();
    EXPECT_EQ(complaint<UsageError>([&] { group.shrink({4}); }), "shrink of group '0': rank 4 is out of range; legal: 0 to 3");
    group.barrier();
    if (me == 0) {
      EXPECT_EQ(complaint<TimeoutError>([&] { group.shrink({2}, {.timeout = 20ms}); }), "shrink of group '0': ranks 1,3 did not call it within 20 ms");
    }
    group.barrier();
  });
}

}  // namespace
}  // namespace tutti::comm
