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

// Ranks meet the chunks in different orders and combine them by index.
TEST(ContextParallel, KeysThatVisitInARing) {
  const TinyLeaves leaves;
  const RunConfig run{.tokens = 64, .balance = 4};
  for (const int ranks : {2, 4})
    check_layout(dense_config(DType::f32), run, {.cp = ranks, .ring = true}, {.flops = 1.0 / ranks});
}

// Chunks of 3, 5 and 6 blocks of keys, which are no nodes of the aligned tree: of S = 768 in chunks of 192, say.
TEST(ContextParallel, ChunksInARingConsistOfAlignedNodes) {
  const TinyLeaves leaves;
  for (const int64_t blocks : {3, 5, 6}) {
    const RunConfig run{.tokens = 4 * blocks * key_block()};
    check_layout(dense_config(DType::f32), run, {.cp = 2, .ring = true}, {.flops = 0.5});
  }
  const RunConfig run{.tokens = 8 * 3 * key_block(), .balance = 4};
  for (const int ranks : {2, 4})
    check_layout(dense_config(DType::f32), run, {.cp = ranks, .ring = true}, {.flops = 1.0 / ranks});
}

TEST(ContextParallel, KeysThatVisitInARingOfTensorParallelRanks) {
  const TinyLeaves leaves;
  check_layout(dense_config(DType::f32), {.tokens = 32}, {.cp = 2, .tp = 2, .sequence = true, .ring = true},
               {.flops = 0.26, .parameters = 0.52});
}

TEST(ContextParallel, MixtureOfExperts) { check_layout(Model::moe, {.cp = 2}, {.flops = 0.6}); }

}  // namespace
}  // namespace tutti::layouts
