#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

// Norms and the residual stream work on a half of the tokens; products as under tensor parallelism.
TEST(SequenceParallel, TwoRanksCutTheTokensBetweenTheProducts) {
  check_layout(Model::dense, {.tp = 2, .sequence = true}, {.flops = 0.51, .parameters = 0.52});
}

TEST(SequenceParallel, FourRanks) {
  const TinyLeaves leaves;
  ModelConfig config = dense_config(DType::f32);
  config.kv_heads = 4;
  check_layout(config, {}, {.tp = 4, .sequence = true}, {.flops = 0.26, .parameters = 0.28});
}

// Attention over tensor parallel ranks, experts on every rank for its own tokens.
TEST(SequenceParallel, MixtureOfExperts) {
  check_layout(Model::moe, {.tp = 2, .sequence = true}, {.flops = 0.6, .parameters = 0.84});
}

}  // namespace
}  // namespace tutti::layouts
