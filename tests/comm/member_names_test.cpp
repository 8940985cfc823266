// Errors of a group of some ranks name a member by its rank there and by that in the world, which launchers and logs
// show.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>

#include "tests/comm/support/forked_ranks.h"
#include "tests/support/message_of.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/process_group.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/comm/transports.h"
#include "tutti/job/peer.h"

namespace tutti::comm {
namespace {

TEST(MemberNames, SayWhatIsKnown) {
  EXPECT_EQ(describe(3, {}), "rank 3");
  EXPECT_EQ(describe(3, {4711, "host7"}), "rank 3 (pid 4711 on host7)");
  EXPECT_EQ(describe(3, {4711, "host7", 3}), "rank 3 (pid 4711 on host7)");
  EXPECT_EQ(describe(1, {4711, "host7", 3}), "rank 1 (world rank 3, pid 4711 on host7)");
  EXPECT_EQ(describe(1, {.world_rank = 3}), "rank 1 (world rank 3)");
}

class MemberNames : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Transports, MemberNames, testing::Values("shm", "gloo", "hier"),
                         [](const auto& info) { return info.param; });

TEST_P(MemberNames, ADeathInAGroupOfSomeRanksSaysWhoThatIsInTheWorld) {
  const std::vector<TransportInfo> known = known_transports();
  if (std::none_of(known.begin(), known.end(),
                   [&](const TransportInfo& t) { return t.name == GetParam() && t.available; }))
    GTEST_SKIP() << "no " << GetParam() << " in this build";
  const auto results = run_world(3,
                                 [](ProcessGroup& world) {
                                   if (world.rank() == 1) {
                                     world.barrier();
                                     return;
                                   }
                                   const std::shared_ptr<ProcessGroup> some = new_group({0, 2});
                                   some->barrier();
                                   if (some->rank() == 1) raise(SIGKILL);
                                   try {
                                     some->barrier();
                                   } catch (const Error& error) {
                                     const std::string text = error.what();
                                     if (text.find("rank 1 (world rank 2, pid ") == std::string::npos)
                                       throw std::logic_error("it says: " + text);
                                     throw;
                                   }
                                 },
                                 {.transport = GetParam()});
  EXPECT_NE(results[0].error.find("rank 1 (world rank 2, pid "), std::string::npos) << results[0].error;
  EXPECT_EQ(results[0].error.find("it says"), std::string::npos) << results[0].error;
}

TEST(MemberNames, RanksThatAreThreadsHaveThemToo) {
  run_ranks(3, [](ProcessGroup& world) {
    if (world.rank() == 0) return;
    const std::shared_ptr<ProcessGroup> some = new_group({1, 2});
    some->barrier();
    if (some->rank() == 0) return;
    const std::string text = message_of([&] {
      try {
        some->recv(Tensor::of<float>({1}), 0, 3, {.timeout = std::chrono::milliseconds(200)});
      } catch (const Error& error) {
        throw UsageError(error.what());
      }
    });
    if (text.find("rank 0 (world rank 1, pid ") == std::string::npos) throw std::logic_error("it says: " + text);
  });
}

}  // namespace
}  // namespace tutti::comm
