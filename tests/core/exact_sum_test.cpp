#include "tutti/core/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace tutti {
namespace {

std::vector<float> random_values(size_t n, float scale) {
  std::mt19937 generator(7);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> values(n);
  for (float& v : values) v = normal(generator);
  return values;
}

TEST(ExactSum, DoesNotDependOnOrder) {
  std::vector<float> values = random_values(100'001, 1e-4f);
  ExactSum forward(ExactTerm::square), backward(ExactTerm::square);
  forward.add(values);
  std::reverse(values.begin(), values.end());
  backward.add(values);
  EXPECT_EQ(forward.words(), backward.words());
  EXPECT_EQ(forward.value(), backward.value());
}

TEST(ExactSum, MatchesALongDoubleSum) {
  for (const float scale : {1e-30f, 1e-4f, 1.0f, 1e30f}) {
    const std::vector<float> values = random_values(10'000, scale);
    long double squares = 0, sum = 0;
    for (const float v : values) squares += static_cast<long double>(v) * v, sum += v;
    ExactSum a(ExactTerm::square), b(ExactTerm::value);
    a.add(values);
    b.add(values);
    EXPECT_NEAR(a.value() / static_cast<double>(squares), 1.0, 1e-14);
    EXPECT_NEAR(b.value(), static_cast<double>(sum), 1e-12 * std::abs(static_cast<double>(scale)));
  }
}

TEST(ExactSum, AddsBinsOfRanksAsIntegers) {
  const std::vector<float> values = random_values(5'000, 3.0f);
  ExactSum whole(ExactTerm::value), first(ExactTerm::value), second(ExactTerm::value), joined(ExactTerm::value);
  whole.add(values);
  first.add(std::span(values).first(1'234));
  second.add(std::span(values).subspan(1'234));
  auto words = first.words();
  const auto other = second.words();
  for (size_t i = 0; i < words.size(); ++i) words[i] += other[i];
  joined.set_words(words);
  EXPECT_EQ(whole.words(), joined.words());
}

TEST(ExactSum, KeepsDenormals) {
  ExactSum sum(ExactTerm::value);
  sum.add(std::vector<float>(3, std::numeric_limits<float>::denorm_min()));
  EXPECT_EQ(sum.value(), 3.0 * std::numeric_limits<float>::denorm_min());
}

TEST(ExactSum, CountsNanAndInfinities) {
  const float inf = std::numeric_limits<float>::infinity();
  ExactSum square(ExactTerm::square), both(ExactTerm::value), nan(ExactTerm::value);
  square.add(std::vector<float>{1.0f, -inf});
  both.add(std::vector<float>{inf, 0.0f, 0.0f, 0.0f, -inf});
  nan.add(std::vector<float>{std::nanf(""), 2.0f});
  EXPECT_EQ(square.value(), std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(both.value()));
  EXPECT_TRUE(std::isnan(nan.value()));
  EXPECT_FALSE(square.is_finite());
}

}  // namespace
}  // namespace tutti
