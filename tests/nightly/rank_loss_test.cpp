// TUTTI_LOSSES and TUTTI_LOSSES_SEED in the environment choose another count and other moments.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/cli/support/losses.h"

namespace tutti::test {
namespace {

void lose_hundred(LossLayout layout) {
  const char* count = std::getenv("TUTTI_LOSSES");
  const char* seed = std::getenv("TUTTI_LOSSES_SEED");
  const LossReport report = lose_ranks(layout, seed ? std::stoull(seed) : 1, count ? std::stoi(count) : 100);
  std::printf("%s\n", report.counts.c_str());
  EXPECT_EQ(report.difference, "");
}

TEST(RankLoss, OneHundredOfReplicasAtRandomMomentsChangeNothing) { lose_hundred(LossLayout::replicas); }
TEST(RankLoss, OneHundredOfShardsAtRandomMomentsChangeNothing) { lose_hundred(LossLayout::shards); }

}  // namespace
}  // namespace tutti::test
