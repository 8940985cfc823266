#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

// 53 inner features and 131 classes split 27 | 26 and 66 | 65; norm weights are on every rank.
TEST(TensorParallel, TwoRanksCutHeadsFeaturesAndClasses) {
  check_layout(Model::dense, {.tp = 2}, {.flops = 0.51, .parameters = 0.52});
}

TEST(TensorParallel, FourRanksCutTheHalvesAgain) {
  const TinyLeaves leaves;
  ModelConfig config = dense_config(DType::f32);
  config.kv_heads = 4;
  check_layout(config, {}, {.tp = 4}, {.flops = 0.26, .parameters = 0.28});
}

}  // namespace
}  // namespace tutti::layouts
