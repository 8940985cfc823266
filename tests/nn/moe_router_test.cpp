#include "tutti/nn/moe_router.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tutti/nn/grouped_experts.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"

namespace tutti::nn {
namespace {

using facets::sample_tensor;

std::vector<int64_t> choices(const Router& router, const Tensor& x) {
  const Tensor ids = to_contiguous(router.forward(x).expert_ids_TK);
  return {ids.data<int64_t>(), ids.data<int64_t>() + ids.numel()};
}

TEST(Router, PrefersTheLowestExpertAmongEqualOnes) {
  Router router(3, {.num_experts = 5, .top_k = 3});
  router.weight.assign(zeros({5, 3}));
  EXPECT_EQ(choices(router, ones({2, 3})), (std::vector<int64_t>{0, 1, 2, 0, 1, 2}));
  router.expert_bias.use().data<float>()[3] = 1;  // moves the choice, not the order of equal scores
  EXPECT_EQ(choices(router, ones({1, 3})), (std::vector<int64_t>{0, 1, 3}));
}

TEST(Router, ChoosesWithTheBiasAndWeighsWithoutIt) {
  Router router(1, {.num_experts = 3, .top_k = 2});
  router.weight.assign(Tensor::of<float>({2, 1, 0}, {3, 1}));
  router.expert_bias.set(Tensor::of<float>({0, -1, 0}));
  const Routing routing = router.forward(ones({1, 1}));
  EXPECT_EQ(choices(router, ones({1, 1})), (std::vector<int64_t>{0, 2}));
  EXPECT_NEAR(routing.weights_TK.data<float>()[0], 0.880797, 1e-5);
  EXPECT_NEAR(routing.weights_TK.data<float>()[1], 0.5, 1e-6);
}

// Its gate reads rms_norm(x, scale) / sqrt(D), and weights that add up to 1 are multiplied by those of their experts.
TEST(Router, ScalesWhatItReadsAndTheWeightsOfExperts) {
  Router router(2, {.num_experts = 3,
                    .top_k = 2,
                    .score_func = ScoreFunction::softmax,
                    .route_norm = true,
                    .scaled = true,
                    .norm_eps = 0});
  router.weight.assign(Tensor::of<float>({1, 0, 0, 1, -1, -1}, {3, 2}));
  router.scale.assign(Tensor::of<float>({2, 1}));
  router.per_expert_scale.assign(Tensor::of<float>({3, 5, 7}));
  const Tensor x = Tensor::of<float>({3, 4}, {1, 2});
  const Routing routing = router.forward(x);
  EXPECT_EQ(choices(router, x), (std::vector<int64_t>{0, 1}));
  // The root mean square of (3, 4) is 5 / sqrt(2), so that the gate reads (6 / 5, 4 / 5).
  const double share = 1 / (1 + std::exp(0.8 - 1.2));
  EXPECT_NEAR(routing.weights_TK.data<float>()[0], 3 * share, 1e-5);
  EXPECT_NEAR(routing.weights_TK.data<float>()[1], 5 * (1 - share), 1e-5);
  EXPECT_EQ(router.named_parameters().size(), 3u);
  EXPECT_EQ(Router(2, {.num_experts = 3}).named_parameters().size(), 1u);
}

TEST(Router, BalancesByForceForMeasurements) {
  Router router(3, {.num_experts = 4, .top_k = 3, .force_load_balance = true});
  initialize(router);
  EXPECT_EQ(choices(router, sample_tensor(1, {4, 3})), (std::vector<int64_t>{0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3}));
}

TEST(RouterErrors, NameTheOption) {
  const auto error = [](const RouterOptions& options) { return message_of([&] { Router(4, options); }); };
  EXPECT_EQ(error({.num_experts = 0}), "Router: num_experts is 0; expected at least 1");
  EXPECT_EQ(error({.num_experts = 4, .top_k = 5}), "Router: top_k is 5 of 4 experts; expected 1 to 4");
  EXPECT_EQ(error({.num_experts = 4, .num_expert_groups = 3}),
            "Router: num_expert_groups is 3 for 4 experts; expected a divisor that leaves groups of at least 2");
  EXPECT_EQ(
      error({.num_experts = 4, .top_k = 3, .num_expert_groups = 2, .num_limited_groups = 1}),
      "Router: num_limited_groups is 1 of 2 groups of 2 experts; expected at most 2, and enough of them for top_k = 3");
  EXPECT_EQ(error({.num_limited_groups = 1}),
            "Router: num_limited_groups is 1 without groups; give num_expert_groups, too");
  EXPECT_EQ(message_of([] { parse_score_function("relu"); }),
            "'relu' is no score function of a router; expected softmax or sigmoid");
  EXPECT_EQ(message_of([] { GroupedExperts(0, 4, 4, Init::zeros()); }),
            "GroupedExperts: 0 experts of 4 to 4 features; expected at least 1 expert, and sizes of 0 or more");
}

}  // namespace
}  // namespace tutti::nn
