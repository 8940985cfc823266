#include "tutti/comm/shm_group.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <limits>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

using ::testing::TestWithParam;
using ::testing::Values;

class ShmGroupOfRanks : public TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ShmGroupOfRanks, Values(1, 2, 3, 4, 5, 8));

TEST_P(ShmGroupOfRanks, SumLikeOneProcessAsThreads) {
  run_ranks(GetParam(), [&](ShmGroup& group) {
    for (const int64_t count : {1, 2, 3, 7, 1000, 5003}) {
      std::vector<float> values = rank_values(group.rank(), count);
      group.all_reduce_sum_f32(values);
      TUTTI_CHECK(same_bits(values, serial_tree(group.size(), count)), "other bits for {} elements", count);
    }
  });
}

TEST_P(ShmGroupOfRanks, SumLikeOneProcessAsProcesses) {
  const auto results = run_forked(GetParam(), [&](ShmGroup& group) {
    for (const int64_t count : {1, 1023, 1024, 1025, 5003}) {  // chunks hold 1024 floats
      std::vector<float> values = rank_values(group.rank(), count);
      group.all_reduce_sum_f32(values);
      TUTTI_CHECK(same_bits(values, serial_tree(group.size(), count)), "other bits for {} elements", count);
    }
  });
  for (const ForkedResult& result : results) EXPECT_TRUE(result.succeeded()) << result.error;
}

TEST_P(ShmGroupOfRanks, AcceptEmptyBuffers) {
  run_ranks(GetParam(), [](ShmGroup& group) {
    group.all_reduce_sum_f32({});
    group.all_reduce_sum_i64({});
    group.all_reduce_max_f64({});
    group.broadcast({}, 0);
    group.all_gather({}, {});
  });
}

TEST_P(ShmGroupOfRanks, SumIntegers) {
  run_ranks(GetParam(), [](ShmGroup& group) {
    std::vector<int64_t> values{group.rank(), -1, std::numeric_limits<int64_t>::max()};
    group.all_reduce_sum_i64(values);
    const int64_t ranks = group.size();
    TUTTI_CHECK_EQ(values[0], ranks * (ranks - 1) / 2, "sum of ranks");
    TUTTI_CHECK_EQ(values[1], -ranks, "sum of -1");
    TUTTI_CHECK_EQ(values[2], static_cast<int64_t>(static_cast<uint64_t>(ranks) * (~uint64_t{0} >> 1)), "wraps");
  });
}

TEST_P(ShmGroupOfRanks, FindTheLargestAndLetNanWin) {
  run_ranks(GetParam(), [](ShmGroup& group) {
    std::vector<double> values{-1.0 - group.rank(), 1.0 * group.rank(), 0.0};
    if (group.rank() == group.size() - 1) values[2] = std::nan("");
    group.all_reduce_max_f64(values);
    TUTTI_CHECK_EQ(values[0], -1.0, "largest of the negatives");
    TUTTI_CHECK_EQ(values[1], group.size() - 1.0, "largest rank");
    TUTTI_CHECK(std::isnan(values[2]), "NaN is lost");
  });
}

TEST_P(ShmGroupOfRanks, BroadcastFromEveryRoot) {
  const auto results = run_forked(GetParam(), [](ShmGroup& group) {
    for (int root = 0; root < group.size(); ++root) {
      std::vector<std::byte> bytes(10001, static_cast<std::byte>(group.rank() + 1));
      group.broadcast(bytes, root);
      for (const std::byte b : bytes) TUTTI_CHECK(b == static_cast<std::byte>(root + 1), "wrong byte");
    }
  });
  for (const ForkedResult& result : results) EXPECT_TRUE(result.succeeded()) << result.error;
}

TEST_P(ShmGroupOfRanks, GatherInRankOrder) {
  const auto results = run_forked(GetParam(), [](ShmGroup& group) {
    const size_t nbytes = 9001;
    const std::vector<std::byte> mine(nbytes, static_cast<std::byte>(group.rank() + 1));
    std::vector<std::byte> all(nbytes * group.size());
    group.all_gather(mine, all);
    for (size_t i = 0; i < all.size(); ++i) TUTTI_CHECK(all[i] == static_cast<std::byte>(i / nbytes + 1), "at {}", i);
  });
  for (const ForkedResult& result : results) EXPECT_TRUE(result.succeeded()) << result.error;
}

TEST(ShmGroup, ManyMeetingsOnFewCoresMakeProgress) {
  run_ranks(16, [](ShmGroup& group) {
    std::vector<int64_t> value{1};
    for (int i = 0; i < 50; ++i) {
      value[0] = i;
      group.all_reduce_sum_i64(value);
      TUTTI_CHECK_EQ(value[0], 16 * i, "round {}", i);
      group.barrier();
    }
  });
}

TEST(ShmGroup, StaysUsableAfterAMismatch) {
  run_ranks(3, [](ShmGroup& group) {
    std::vector<float> values(group.rank() == 2 ? 12 : 10, 1.0f);
    EXPECT_THROW(group.all_reduce_sum_f32(values), UsageError);
    std::vector<float> one{1.0f};
    group.all_reduce_sum_f32(one);
    TUTTI_CHECK_EQ(one[0], 3.0f, "after the mismatch");
  });
}

TEST(ShmGroup, NamesARankKilledBetweenTwoCollectives) {
  const auto results = run_forked(3, [](ShmGroup& group) {
    group.barrier();
    if (group.rank() == 1) raise(SIGKILL);
    std::vector<float> values(10);
    group.all_reduce_sum_f32(values);
  });
  for (const int r : {0, 2}) {
    EXPECT_NE(results[r].error.find("rank 1 (pid "), std::string::npos) << results[r].error;
    EXPECT_NE(results[r].error.find("died before it came to all_reduce_sum #2"), std::string::npos) << results[r].error;
  }
}

// Rank 2 joins the first half of the collective, and dies before the second.
TEST(ShmGroup, NamesARankKilledInsideACollective) {
  const auto results = run_forked(3, [](ShmGroup& group) {
    std::vector<float> values(100'000);  // 98 chunks
    if (group.rank() == 2) {
      std::signal(SIGALRM, SIG_DFL);
      ualarm(1000, 0);
      while (true) group.all_reduce_sum_f32(values);
    }
    while (true) group.all_reduce_sum_f32(values);
  });
  EXPECT_TRUE(WIFSIGNALED(results[2].wait_status));
  for (const int r : {0, 1}) {
    EXPECT_NE(results[r].error.find("rank 2 (pid "), std::string::npos) << results[r].error;
    EXPECT_NE(results[r].error.find("died before it came to all_reduce_sum #"), std::string::npos) << results[r].error;
  }
}

TEST(ShmGroup, NamesARankThatExitsEarly) {
  const auto results = run_forked(2, [](ShmGroup& group) {
    group.barrier();
    if (group.rank() == 0) group.barrier();
  });
  EXPECT_NE(results[0].error.find("left its group without barrier #2"), std::string::npos) << results[0].error;
  EXPECT_TRUE(results[1].succeeded());
}

TEST(ShmGroup, NamesARankThatDiesBeforeItAttaches) {
  const auto segment = ShmSegment::create(2);
  segment->announce(1, 0x3ffffffe);  // above every pid the kernel gives out
  ShmGroup group(segment, 0);
  try {
    group.barrier();
    FAIL() << "the barrier returned";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("rank 1 (pid 1073741822) died"), std::string::npos) << error.what();
  }
}

TEST(ShmGroup, NamesRanksThatMissTheDeadline) {
  ShmGroup group(ShmSegment::create(3), 1, {.timeout = std::chrono::milliseconds(1)});
  try {
    group.barrier();
    FAIL() << "the barrier returned";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("barrier #1: not all ranks arrived within 0.001 s; missing: 0 2"),
              std::string::npos)
        << error.what();
  }
}

TEST(ShmGroup, StaysFailedAfterAFailure) {
  ShmGroup group(ShmSegment::create(2), 0);
  group.abort("stop here");
  for (int i = 0; i < 2; ++i) EXPECT_THROW(group.barrier(), EnvironmentError);
}

TEST(ShmSegment, RefusesADescriptorThatIsNoSegment) {
  EXPECT_THROW(ShmSegment::open(0), EnvironmentError);
}

TEST(ShmSegment, RefusesTooManyRanks) {
  EXPECT_THROW(ShmSegment::create(0), UsageError);
  EXPECT_THROW(ShmSegment::create(65), UsageError);
}

}  // namespace
}  // namespace tutti::comm
