#include <gtest/gtest.h>

#include "tests/layouts/support/check.h"

namespace tutti::layouts {
namespace {

// Storage is cut flat, at any element: parameters and moments at rest are a half, a quarter, a third of a norm weight.
TEST(Fsdp, TwoRanksHoldHalfOfEveryParameter) {
  check_layout(Model::dense, {.fsdp = 2}, {.flops = 0.5, .parameters = 0.501});
}
TEST(Fsdp, FourRanksHoldAQuarter) { check_layout(Model::dense, {.fsdp = 4}, {.flops = 0.25, .parameters = 0.251}); }
TEST(Fsdp, TwoReplicasOfTwoParts) {
  check_layout(Model::dense, {.dp = 2, .fsdp = 2}, {.flops = 0.25, .parameters = 0.501});
}
// A block's parameters are gathered for its forward, dropped, and gathered again for its backward: at the peak there is
// a quarter of everything, one block and the head.
TEST(Fsdp, ParametersAreGatheredBlockByBlock) {
  const TinyLeaves leaves;
  ModelConfig config = dense_config(DType::f32);
  config.layers = 8;
  check_layout(config, {}, {.fsdp = 4, .checkpoint = true},
               {.flops = 0.34, .parameters = 0.251, .parameters_at_peak = 0.6});
}

TEST(Fsdp, MixtureOfExperts) { check_layout(Model::moe, {.fsdp = 2}, {.flops = 0.501, .parameters = 0.501}); }

}  // namespace
}  // namespace tutti::layouts
