#include "tutti/optim/expert_balance.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"

namespace tutti::optim {
namespace {

// What a bias of zeros becomes, in thousandths.
std::vector<float> changes(const std::vector<int64_t>& tokens) {
  const Tensor bias = Tensor::of(std::vector<float>(tokens.size(), 0.0f));
  balance_experts(bias, tokens, 1e-3);
  std::vector<float> values;
  for (int64_t e = 0; e < bias.numel(); ++e) values.push_back(bias.data<float>()[e] * 1e3f);
  return values;
}

void expect_near(const std::vector<float>& actual, const std::vector<float>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t e = 0; e < actual.size(); ++e) EXPECT_NEAR(actual[e], expected[e], 1e-6) << e;
}

TEST(BalanceExperts, MovesEachExpertTowardTheMean) {
  expect_near(changes({10, 2, 4, 8}), {-1, 1, 1, -1});
  expect_near(changes({9, 1, 1, 1}), {-1.5, 0.5, 0.5, 0.5});
  expect_near(changes({7, 7, 7}), {0, 0, 0});
  expect_near(changes({0, 0, 0, 0}), {0, 0, 0, 0});
  expect_near(changes({5, 3, 4}), {-1, 1, 0});
}

TEST(BalanceExperts, ChangesOnlyAccumulate) {
  const Tensor bias = Tensor::of<float>({0.25f, -0.25f});
  for (int i = 0; i < 3; ++i) balance_experts(bias, std::vector<int64_t>{4, 1}, 0.125);
  EXPECT_EQ(bias.data<float>()[0], -0.125f);
  EXPECT_EQ(bias.data<float>()[1], 0.125f);
  balance_experts(bias, std::vector<int64_t>{4, 1}, 0);
  EXPECT_EQ(bias.data<float>()[0], -0.125f);
}

TEST(BalanceExperts, RefusesABiasOfOtherExperts) {
  EXPECT_EQ(message_of([] { balance_experts(Tensor::of<float>({0, 0}), std::vector<int64_t>{1, 2, 3}, 1e-3); }),
            "balance_experts: the bias is [2] f32 cpu; expected a dense f32 tensor of 3 elements, one for each count");
}

}  // namespace
}  // namespace tutti::optim
