// What a user reads when the ranks of a run do not agree, or one is missing.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/launcher.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

// The message on every rank; all must be alike.
std::string complaint_of_all(const std::function<void(ShmGroup&)>& fn) {
  std::vector<std::string> texts(3);
  run_ranks(3, [&](ShmGroup& group) {
    try {
      fn(group);
    } catch (const UsageError& error) {
      texts[group.rank()] = error.what();
    }
  });
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
  return texts[0];
}

TEST(CommMessages, DifferentCountsNameBothRanks) {
  EXPECT_EQ(complaint_of_all([](ShmGroup& group) {
              std::vector<float> values(group.rank() == 2 ? 12 : 10);
              group.all_reduce_sum_f32(values);
            }),
            "collective #1: the counts differ: rank 0 called all_reduce_sum(f32, count 10), rank 2 called "
            "all_reduce_sum(f32, count 12). All ranks must make the same calls in the same order");
}

TEST(CommMessages, DifferentOperationsNameBothRanks) {
  EXPECT_EQ(complaint_of_all([](ShmGroup& group) {
              std::vector<float> values(10);
              group.rank() == 1 ? group.barrier() : group.all_reduce_sum_f32(values);
            }),
            "collective #1: the operations differ: rank 0 called all_reduce_sum(f32, count 10), rank 1 called "
            "barrier(). All ranks must make the same calls in the same order");
}

TEST(CommMessages, DifferentDtypesNameBothRanks) {
  EXPECT_EQ(complaint_of_all([](ShmGroup& group) {
              std::vector<float> floats(4);
              std::vector<int64_t> integers(4);
              group.rank() == 1 ? group.all_reduce_sum_i64(integers) : group.all_reduce_sum_f32(floats);
            }),
            "collective #1: the dtypes differ: rank 0 called all_reduce_sum(f32, count 4), rank 1 called "
            "all_reduce_sum(i64, count 4). All ranks must make the same calls in the same order");
}

TEST(CommMessages, DifferentRootsNameBothRanks) {
  EXPECT_EQ(complaint_of_all([](ShmGroup& group) {
              std::vector<std::byte> bytes(4);
              group.broadcast(bytes, group.rank() == 2 ? 1 : 0);
            }),
            "collective #1: the roots differ: rank 0 called broadcast(4 bytes, root 0), rank 2 called "
            "broadcast(4 bytes, root 1). All ranks must make the same calls in the same order");
}

TEST(CommMessages, AWrongOutputSizeSaysTheRightOne) {
  EXPECT_EQ(complaint_of_all([](ShmGroup& group) {
              std::vector<std::byte> mine(4), all(8);
              group.all_gather(mine, all);
            }),
            "all_gather: 8 output bytes for 3 ranks of 4 bytes; expected 12");
}

TEST(CommMessages, TheEndOfARankIsTold) {
  EXPECT_EQ(describe_exit(2, 4711, 7 << 8), "rank 2 (pid 4711) exited with status 7");
  EXPECT_EQ(describe_exit(2, 4711, 9), "rank 2 (pid 4711) was killed by SIGKILL");
}

}  // namespace
}  // namespace tutti::comm
