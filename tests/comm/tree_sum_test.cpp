#include "tutti/comm/tree_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/comm/support/forked_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

std::vector<float> sum_of(int ranks, int64_t count) {
  std::vector<std::vector<float>> all;
  std::vector<const float*> addends;
  for (int r = 0; r < ranks; ++r) all.push_back(rank_values(r, count));
  for (const auto& values : all) addends.push_back(values.data());
  std::vector<float> out(static_cast<size_t>(count));
  tree_sum_f32(addends, count, out.data());
  return out;
}

TEST(TreeSum, EqualsThePlainHalvingTreeForEveryNumberOfAddends) {
  for (int ranks = 1; ranks <= kMaxRanks; ++ranks) {
    EXPECT_TRUE(same_bits(sum_of(ranks, 1300), serial_tree(ranks, 1300))) << ranks << " addends";
  }
}

TEST(TreeSum, OfFiveIsThreePlusTwo) {
  const std::vector<float> values{1e8f, 1.0f, -1e8f, 3.0f, 0.25f};
  std::vector<const float*> addends;
  for (const float& value : values) addends.push_back(&value);
  float out = 0;
  tree_sum_f32(addends, 1, &out);
  EXPECT_EQ(out, ((1e8f + 1.0f) + -1e8f) + (3.0f + 0.25f));
}

TEST(TreeSum, MayWriteOverAnAddend) {
  std::vector<float> first = rank_values(0, 700);
  std::vector<float> second = rank_values(1, 700);
  tree_sum_f32(std::vector<const float*>{first.data(), second.data()}, 700, second.data());
  EXPECT_TRUE(same_bits(second, serial_tree(2, 700)));
}

TEST(TreeSum, KeepsNegativeZero) {
  const float zero = -0.0f;
  float out = 1;
  tree_sum_f32(std::vector<const float*>{&zero, &zero, &zero}, 1, &out);
  EXPECT_TRUE(std::signbit(out));
}

TEST(TreeSum, RefusesNoAddends) {
  EXPECT_THROW(tree_sum_f32({}, 1, nullptr), UsageError);
}

}  // namespace
}  // namespace tutti::comm
