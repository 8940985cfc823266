#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

TEST(ContextParallel, TwoRanksHoldAHeadTailPairEach) { check_layout(Model::dense, {.cp = 2}, {.flops = 0.5}); }

// The token order is configured for four ranks, and is the same at every degree below.
TEST(ContextParallel, TheOrderForFourRanksServesOneTwoAndFour) {
  const TinyLeaves leaves;
  const RunConfig run{.tokens = 32, .balance = 4};
  for (const int ranks : {1, 2, 4}) check_layout(dense_config(DType::f32), run, {.cp = ranks}, {.flops = 1.0 / ranks});
}

TEST(ContextParallel, MixtureOfExperts) { check_layout(Model::moe, {.cp = 2}, {.flops = 0.6}); }

}  // namespace
}  // namespace tutti::layouts
