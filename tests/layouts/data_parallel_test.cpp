#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

TEST(DataParallel, TheShardedCodeOnOneRankIsThePlainModel) {
  check_layout(Model::dense, {}, {.flops = 1, .parameters = 1});
}
TEST(DataParallel, TwoRanksReduceEveryMicrobatch) { check_layout(Model::dense, {.dp = 2}, {.flops = 0.5}); }
TEST(DataParallel, TwoRanksAccumulateAndReduceOnce) {
  check_layout(Model::dense, {.dp = 2, .rank_major = true}, {.flops = 0.5});
}
TEST(DataParallel, FourRanksHoldAShardEach) { check_layout(Model::dense, {.dp = 4}, {.flops = 0.25}); }

}  // namespace
}  // namespace tutti::layouts
