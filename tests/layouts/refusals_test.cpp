// Layouts that cannot keep the bits are refused, with the largest legal degree.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/layouts/support/check.h"
#include "tests/layouts/support/one_rank.h"
#include "tests/layouts/support/parallel_run.h"
#include "tests/layouts/support/ranks.h"
#include "tests/support/message_of.h"
#include "tutti/comm/run_ranks.h"

namespace tutti::layouts {
namespace {

std::string refusal(const ModelConfig& config, const RunConfig& run, const Layout& layout) {
  return message_of([&] {
    comm::run_ranks(layout.ranks(), [&](comm::ProcessGroup& world) { train_rank(config, run, layout, world); });
  });
}

void expect_refusal(const std::string& text, const std::string& what, const std::string& largest) {
  EXPECT_NE(text.find(what), std::string::npos) << text;
  EXPECT_NE(text.find(largest), std::string::npos) << text;
}

TEST(Refusals, MoreTensorParallelRanksThanKeyValueHeads) {
  const TinyLeaves leaves;
  expect_refusal(refusal(dense_config(DType::f32), {}, {.tp = 4}), "layers.0.q", "powers of two up to 2");
}

TEST(Refusals, HeadsThatTheSumOverTheirElementsIsNotCutAt) {
  const TinyLeaves leaves;
  ModelConfig config = dense_config(DType::f32);
  config.heads = 3;
  config.kv_heads = 3;
  expect_refusal(refusal(config, {}, {.tp = 2}), "cut at element 20, the sum over all 30 elements at 15",
                 "heads that the ranks divide");
}

TEST(Refusals, ACutInsideALeafOfAContraction) {
  const TokenGrainScope tokens(2);
  const ClassLeafScope classes(16);
  const codegen::ContractionLeafForTests contraction(32);
  ModelConfig config = dense_config(DType::f32);
  config.kv_heads = 4;
  config.head_dim = 40;
  expect_refusal(refusal(config, {}, {.tp = 4}), "layers.0.gate: 53 elements cannot be cut over 4 ranks",
                 "powers of two up to 2");
}

TEST(Refusals, TokensBelowTheGrain) {
  const TinyLeaves leaves;
  const TokenGrainScope grain(8);
  expect_refusal(refusal(dense_config(DType::f32), {.balance = 4}, {.cp = 4}), "tokens over context parallel ranks",
                 "powers of two up to 2");
}

TEST(Refusals, MoreContextParallelRanksThanTheTokenOrderIsConfiguredFor) {
  const TinyLeaves leaves;
  expect_refusal(refusal(dense_config(DType::f32), {}, {.cp = 4}), "context parallelism over 4 ranks",
                 "this run has 2");
}

TEST(Refusals, ChunksOfARingThatBlocksOfKeysDoNotDivide) {
  const TinyLeaves leaves;
  for (const int64_t tokens : {8, 24, 40}) {
    const std::string chunk = fmt::format("{} keys in chunks of {}, and blocks have 4", tokens, tokens / 4);
    expect_refusal(refusal(dense_config(DType::f32), {.tokens = tokens}, {.cp = 2, .ring = true}),
                   "keys over chunks of a ring", chunk);
  }
}

TEST(Refusals, MoreDataParallelRanksThanVirtualShards) {
  const TinyLeaves leaves;
  expect_refusal(refusal(dense_config(DType::f32), {}, {.dp = 8}), "8 data-parallel ranks", "at most 4 ranks");
}

// ---- the comparison has teeth ---------------------------------------------------------------------------------------

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.raw_data(), b.raw_data(), static_cast<size_t>(a.nbytes())) == 0;
}

TEST(Rules, AnotherContractionLeafGivesOtherBits) {
  const TinyLeaves leaves;
  const RankRecord one = run_one_rank(dense_config(DType::f32), {});
  const codegen::ContractionLeafForTests other(16);
  const RankRecord two = run_one_rank(dense_config(DType::f32), {});
  EXPECT_FALSE(same_bits(one.weights.at("layers.0.down"), two.weights.at("layers.0.down")));
}

// The order of the tokens touches sums over tokens only: the forward pass of the first step keeps its bits.
TEST(Rules, TheTokenOrderChangesGradientsButNotTheFirstLoss) {
  const TinyLeaves leaves;
  const RankRecord natural = run_one_rank(dense_config(DType::f32), {.balance = 1});
  const RankRecord head_tail = run_one_rank(dense_config(DType::f32), {.balance = 2});
  EXPECT_EQ(natural.steps[0].loss, head_tail.steps[0].loss);
  EXPECT_FALSE(same_bits(natural.steps[0].grads.at("layers.0.down"), head_tail.steps[0].grads.at("layers.0.down")));
}

// The ranks notice it on every transport, and what they find arrives here.
TEST(Rules, PartialSumsRoundedBeforeTheyAreAddedGiveOtherBits) {
  const TinyLeaves leaves;
  const ModelConfig config = dense_config(DType::bf16);
  const RankRecord one = run_one_rank(config, {});
  for (const std::string& transport : transports()) {
    const std::string found = differences(transport, one, config, {}, {.tp = 2, .rounds_partial_sums = true}, {});
    for (const char* what :
         {"rank 0:\nloss of step 0: 1 of 1 elements differ", "rank 1:\nloss of step 0", "weight layers.0.down"})
      EXPECT_NE(found.find(what), std::string::npos) << transport << ": " << found;
  }
}

TEST(Rules, MoreWorkThanTheShareOfARankIsNoticed) {
  const TinyLeaves leaves;
  const ModelConfig config = dense_config(DType::f32);
  const RankRecord one = run_one_rank(config, {});
  for (const std::string& transport : transports()) {
    const std::string found = differences(transport, one, config, {}, {.dp = 2}, {.flops = 0.4});
    EXPECT_EQ(found.find("rank 0:\noperations: "), 0u) << transport << ": " << found;
    EXPECT_NE(found.find("rank 1:\noperations: "), std::string::npos) << transport << ": " << found;
  }
}

}  // namespace
}  // namespace tutti::layouts
