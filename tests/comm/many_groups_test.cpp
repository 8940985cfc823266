// A thousand groups of the same four processes.
#include <gtest/gtest.h>

#include <cstdio>

#include "tests/comm/support/forked_ranks.h"
#include "tests/comm/support/traces.h"
#include "tutti/comm/groups.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

constexpr int kGroups = 1000;

TEST(ManyGroups, AThousandAreMadeAndUsedAndLeaveNothing) {
  const Traces before = look_for_traces();
  const auto results = run_world(4,
                                 [](ProcessGroup& world) {
                                   world.barrier();
                                   const auto start = std::chrono::steady_clock::now();
                                   std::vector<std::shared_ptr<ProcessGroup>> groups;
                                   for (int i = 0; i < kGroups; ++i) groups.push_back(new_group({0, 1, 2, 3}));
                                   world.barrier();
                                   const std::chrono::duration<double> made = std::chrono::steady_clock::now() - start;
                                   for (const auto& group : groups) {
                                     int64_t value = 1 << group->rank();
                                     group->all_reduce_values<int64_t>({&value, 1});
                                     TUTTI_CHECK(value == 15, "the sum is {}", value);
                                   }
                                   if (world.rank() == 0)
                                     std::printf("%d groups of 4 processes made in %.3f s\n", kGroups, made.count());
                                   std::fflush(stdout);
                                 },
                                 {.limit = std::chrono::seconds(240)});
  for (size_t r = 0; r < results.size(); ++r)
    EXPECT_TRUE(results[r].succeeded()) << "rank " << r << ": " << results[r].error;
  EXPECT_EQ(left_behind(before), "");
}

}  // namespace
}  // namespace tutti::comm
