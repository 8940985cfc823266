#include "tutti/optim/grad_norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::optim {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> values_of(size_t count, uint32_t seed) {
  uint32_t state = seed;
  std::vector<float> values(count);
  for (float& v : values) {
    state = state * 1664525u + 1013904223u;
    v = std::ldexp(static_cast<float>(static_cast<int32_t>(state)), -30);
  }
  return values;
}

float norm(double type, const std::vector<std::vector<float>>& grads) {
  GradNorm all(type);
  for (const auto& g : grads) {
    GradNorm some(type);
    some.add({{Tensor::of(g)}});
    all.add(some);
  }
  return all.value();
}

TEST(GradNorm, IsThatOfAllElementsForEveryOrder) {
  const std::vector<std::vector<float>> grads = {values_of(1000, 1), {}, values_of(37, 2), values_of(1, 3)};
  for (const double p : {0.5, 1.0, 2.0, 3.0, 7.25}) {
    double sum = 0;
    for (const auto& g : grads) {
      for (const float v : g) sum += std::pow(std::abs(static_cast<double>(v)), p);
    }
    const double expected = std::pow(sum, 1.0 / p);
    EXPECT_NEAR(norm(p, grads), expected, 2e-6 * expected) << p;
  }
  double largest = 0;
  for (const auto& g : grads) {
    for (const float v : g) largest = std::max(largest, std::abs(static_cast<double>(v)));
  }
  EXPECT_EQ(norm(std::numeric_limits<double>::infinity(), grads), static_cast<float>(largest));
}

TEST(GradNorm, DoesNotDependOnTheOrderOrTheCutsOfTerms) {
  const std::vector<float> values = values_of(501, 5);
  std::vector<float> turned(values.rbegin(), values.rend());
  const std::vector<float> head(values.begin(), values.begin() + 77), tail(values.begin() + 77, values.end());
  for (const double p : {1.0, 2.0, 2.5, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(norm(p, {values}), norm(p, {turned})) << p;
    EXPECT_EQ(norm(p, {values}), norm(p, {tail, head})) << p;
  }
}

TEST(GradNorm, OfNothingIsZeroAndOfNaNIsNaN) {
  for (const double p : {1.0, 2.0, 3.0, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(norm(p, {}), 0.0f) << p;
    EXPECT_EQ(norm(p, {{0.0f, -0.0f}}), 0.0f) << p;
    EXPECT_EQ(norm(p, {{1.0f, -kInfinity}}), kInfinity) << p;
    EXPECT_TRUE(std::isnan(norm(p, {{1.0f, std::nanf("")}, {kInfinity}}))) << p;
    EXPECT_TRUE(std::isnan(norm(p, {{kInfinity}, {-std::nanf("")}}))) << p;
  }
  EXPECT_EQ(norm(std::numeric_limits<double>::infinity(), {{1e-45f, -1e-40f}}), 1e-40f) << "denormals count";
}

TEST(GradNorm, RefusesOrdersThatAreNoneAndOtherDtypes) {
  for (const double p : {0.0, -1.0, std::nan("")}) EXPECT_THROW(GradNorm{p}, UsageError) << p;
  GradNorm one(1.0);
  EXPECT_THROW(one.add({{Tensor::empty({2}, DType::bf16)}}), UsageError);
}

}  // namespace
}  // namespace tutti::optim
