// launch_blocks() against a plain definition in 128-bit integers, at the extremes of 64-bit ones.
#include "tutti/runtime/launch_size.h"

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/message_of.h"

namespace tutti {
namespace {

using Wide = __int128;
constexpr std::array kCaps{GridCap::always, GridCap::overflow_only, GridCap::never};

int64_t defined_blocks(Wide blocks, Wide threads, const GridLimits& limits, GridCap cap) {
  const Wide at_once = Wide{limits.processors} * limits.blocks_per_processor;
  const bool is_cut =
      cap == GridCap::always || (cap == GridCap::overflow_only && blocks * threads > limits.most_threads);
  Wide least = blocks;
  if (is_cut && at_once < least) least = at_once;
  if (is_cut && least * threads > limits.most_threads) least = limits.most_threads / threads;
  return static_cast<int64_t>(least < 1 ? Wide{1} : least > kMostBlocks ? Wide{kMostBlocks} : least);
}

TEST(LaunchBlocks, AgreeWithTheDefinitionAtTheExtremes) {
  constexpr int64_t k31 = int64_t{1} << 31, k32 = int64_t{1} << 32;
  const std::vector<int64_t> sizes{
      INT64_MIN, -1, 0, 1, 2, 64, 1023, k31 - 2, k31 - 1, k31, k32 - 1, k32, k32 + 1, INT64_MAX - 1, INT64_MAX};
  const std::vector<int64_t> counts{1, 2, 7, 64, 132, 1024, k31 - 1, k31, k32 - 1, k32, INT64_MAX - 1, INT64_MAX};
  for (const GridCap cap : kCaps)
    for (const int64_t blocks : sizes)
      for (const int64_t threads : counts)
        for (const int64_t processors : counts)
          for (const int64_t each : counts)
            for (const int64_t most : {int64_t{1}, int64_t{1024}, k32 - 1, INT64_MAX}) {
              const GridLimits limits{processors, each, most};
              const int64_t found = launch_blocks(blocks, threads, limits, cap);
              ASSERT_EQ(found, defined_blocks(blocks, threads, limits, cap))
                  << blocks << " blocks of " << threads << ", " << processors << " processors, " << each << ", "
                  << most;
              ASSERT_GE(found, 1);
              ASSERT_LE(found, kMostBlocks);
            }
}

TEST(LaunchBlocks, CutOnlyWhereThePolicySays) {
  const GridLimits hip{.processors = 304, .blocks_per_processor = 64, .most_threads = (int64_t{1} << 32) - 1};
  EXPECT_EQ(launch_blocks(1 << 20, 256, hip, GridCap::always), 304 * 64);
  EXPECT_EQ(launch_blocks(1 << 20, 256, hip, GridCap::overflow_only), 1 << 20);
  EXPECT_EQ(launch_blocks(int64_t{1} << 24, 256, hip, GridCap::overflow_only), 304 * 64)
      << "2^32 threads are one too many";
  EXPECT_EQ(launch_blocks((int64_t{1} << 24) - 1, 256, hip, GridCap::overflow_only), (1 << 24) - 1);
  EXPECT_EQ(launch_blocks(int64_t{1} << 24, 256, hip, GridCap::never), 1 << 24);
}

TEST(LaunchBlocks, ABlockOfMoreThreadsThanALaunchMayHaveIsOneBlock) {
  for (const GridCap cap : {GridCap::always, GridCap::overflow_only})
    EXPECT_EQ(launch_blocks(100, 1024, {.most_threads = 1023}, cap), 1);
}

TEST(LaunchBlocks, LimitsOfNothingAreRefused) {
  EXPECT_EQ(message_of([] { launch_blocks(1, 0, {}, GridCap::never); }),
            "launch: a block of 0 threads; expected 1 or more");
  EXPECT_EQ(
      message_of([] { launch_blocks(1, 1, {.processors = 0}, GridCap::never); }),
      "launch: 0 processors with 64 blocks each, and at most 9223372036854775807 threads in a launch; expected 1 or "
      "more of each");
}

TEST(GridStride, BlocksShareAllWorkWhateverTheGrid) {
  for (const int64_t work : {0, 1, 2, 5, 64, 1000})
    for (const int64_t blocks : {1, 2, 3, 64, 1001}) {
      std::vector<int> visits(static_cast<size_t>(work), 0);
      for (int64_t block = 0; block < blocks; ++block)
        grid_stride(block, blocks, work, [&](int64_t i) { ++visits[static_cast<size_t>(i)]; });
      EXPECT_EQ(visits, std::vector<int>(static_cast<size_t>(work), 1)) << work << " by " << blocks;
    }
}

TEST(GridStride, DoesNotOverflowAtTheLargestWork) {
  std::vector<int64_t> visited;
  const auto visit = [&](int64_t i) { visited.push_back(i); };
  grid_stride(kMostBlocks - 1, INT64_MAX / 2, INT64_MAX, visit);
  EXPECT_EQ(visited, (std::vector<int64_t>{kMostBlocks - 1, kMostBlocks - 1 + INT64_MAX / 2}));
  visited.clear();
  grid_stride(INT64_MAX - 1, kMostBlocks, INT64_MAX, visit);
  EXPECT_EQ(visited, std::vector<int64_t>{INT64_MAX - 1});
}

}  // namespace
}  // namespace tutti
