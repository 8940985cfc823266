// Calls that make groups and do not fit together between ranks: an error on all of them that names the ranks and both
// lists, within seconds instead of at the deadline, and the next group is made.
#include <gtest/gtest.h>

#include <thread>

#include "tests/comm/support/group_disagreements.h"
#include "tests/comm/support/transport_worlds.h"
#include "tutti/comm/groups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"
#include "tutti/job/errors.h"

namespace tutti::comm {
namespace {

using Group = std::shared_ptr<ProcessGroup>;

class GroupAgreement : public testing::TestWithParam<std::tuple<std::string, Disagreement>> {};
INSTANTIATE_TEST_SUITE_P(Over, GroupAgreement,
                         testing::Combine(testing::ValuesIn(world_transports()), testing::ValuesIn(disagreements())),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

TEST_P(GroupAgreement, IsRefusedOnAllRanksAndTheNextGroupIsMade) {
  const auto& [transport, disagreement] = GetParam();
  run_over(transport, 3, [d = disagreement](ProcessGroup& world) { check_disagreement(world, d); });
}

// Who is only late, because it makes another group first, is waited for.
TEST(GroupAgreement, GroupsThatOverlapAreMadeInAnyOrderThatCanEnd) {
  for (const std::string& transport : world_transports()) {
    run_over(transport, 3, [](ProcessGroup& world) {
      for (int i = 0; i < 10; ++i) {
        const Group a = world.rank() != 2 ? new_group({0, 1}) : nullptr;
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(i == 0 ? 300 : 0));
        const Group b = world.rank() != 0 ? new_group({1, 2}) : nullptr,
                    c = world.rank() != 1 ? new_group({0, 2}) : nullptr;
        for (const Group& group : {a, b, c}) {
          if (group) group->barrier();
        }
      }
    });
  }
}

TEST(GroupAgreement, ALateMemberIsNamedAndNothingStaysInTheStore) {
  run_ranks(3, [](ProcessGroup& world) {
    const auto keys = [&] { return world.store()->num_keys(); };
    expect_groups(world);
    world.barrier();
    const int64_t before = keys();
    world.barrier();
    for (int i = 0; i < 5; ++i) expect_groups(world);
    world.barrier();
    TUTTI_CHECK(keys() <= before, "{} keys, {} before", keys(), before);
    world.barrier();
    if (world.rank() == 2) return;
    try {
      new_group({0, 1, 2}, {.timeout = std::chrono::milliseconds(300)});
      throw InternalError("nothing was thrown");
    } catch (const TimeoutError& error) {
      const std::string_view text = error.what();
      TUTTI_CHECK(
          text.starts_with("new_group of ranks [0,1,2]: rank 2") && text.ends_with(" did not call it within 300 ms"),
          "{}", text);
    }
  });
}

}  // namespace
}  // namespace tutti::comm
