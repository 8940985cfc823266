#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

TEST(ExpertParallel, TheShardedCodeOnOneRankIsThePlainModel) { check_layout(Model::moe, {}, {}); }
TEST(ExpertParallel, DataParallelRanksHoldAllExperts) { check_layout(Model::moe, {.dp = 2}, {.flops = 0.6}); }
TEST(ExpertParallel, TwoRanksHoldThreeExpertsEach) {
  check_layout(Model::moe, {.dp = 2, .ep = 2}, {.flops = 0.6, .parameters = 0.75});
}
TEST(ExpertParallel, FourRanksHoldOneOrTwoExperts) {
  check_layout(Model::moe, {.dp = 4, .ep = 4}, {.flops = 0.35, .parameters = 0.65});
}

}  // namespace
}  // namespace tutti::layouts
