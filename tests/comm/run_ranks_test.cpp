#include "tutti/comm/run_ranks.h"

#include <gtest/gtest.h>

#include <atomic>

#include "tutti/comm/groups.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

TEST(RunRanks, GivesEveryRankItsOwnNumber) {
  std::atomic<int> seen{0};
  run_ranks(5, [&](ProcessGroup& group) { seen += 1 << group.rank(); });
  EXPECT_EQ(seen, 31);
}

TEST(RunRanks, ThrowsTheFirstErrorWithItsRankAndReleasesTheOthers) {
  try {
    run_ranks(4, [](ProcessGroup& group) {
      TUTTI_CHECK(group.rank() != 2, "no luck");
      group.barrier();
    });
    FAIL() << "nothing was thrown";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "rank 2: no luck");
  }
}

TEST(RunRanks, AFakeRankIsAloneInItsWorld) {
  run_fake_rank(3, 1000, [](ProcessGroup& world) {
    EXPECT_EQ(world.rank(), 3);
    EXPECT_EQ(world.size(), 1000);
    world.barrier();
    int64_t value = 5;
    world.all_reduce_values<int64_t>({&value, 1});
    const auto column = new_group({3, 503});
    EXPECT_EQ(column->backend(DeviceKind::cpu).name(), "fake");
    column->barrier();
  });
  EXPECT_THROW(run_fake_rank(0, 2, [](ProcessGroup&) { throw UsageError("no luck"); }), UsageError);
}

TEST(RunRanks, KeepsTheKindOfAnError) {
  EXPECT_THROW(
      run_ranks(2, [](ProcessGroup& group) { group.rank() == 0 ? throw TimeoutError("late") : group.barrier(); }),
      TimeoutError);
  EXPECT_THROW(run_ranks(2, [](ProcessGroup& group) { group.rank() == 0 ? throw PeerError("gone") : group.barrier(); }),
               PeerError);
}

TEST(RunRanks, PassesForeignExceptionsOn) {
  EXPECT_THROW(run_ranks(2,
                         [](ProcessGroup& group) {
                           if (group.rank() == 0) throw std::out_of_range("far");
                           group.barrier();
                         }),
               std::out_of_range);
}

TEST(RunRanks, TellsTheOthersWhichRankFailed) {
  std::string seen;
  EXPECT_THROW(run_ranks(2,
                         [&](ProcessGroup& group) {
                           if (group.rank() == 1) throw std::runtime_error("bad luck");
                           try {
                             group.barrier();
                           } catch (const EnvironmentError& error) {
                             seen = error.what();
                           }
                         }),
               std::runtime_error);
  EXPECT_TRUE(seen.starts_with("rank 1 failed: bad luck; the last calls are in ")) << seen;
}

}  // namespace
}  // namespace tutti::comm
