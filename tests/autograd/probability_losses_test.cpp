// Losses of target probabilities against the formula in long double: targets that are nearly one class, classes that
// are masked or far away from the others, and any chunks.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/ops/linear_cross_entropy.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/softmax.h"
#include "tutti/ops/unary.h"

namespace tutti {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
using Row = std::vector<float>;

struct Result {
  Tensor loss, gradient;  // the gradient of the logits
};
// The weight is the column of logits and the input is 1.
Result loss_of(const Row& logits, const Row& target,
               const LinearCrossEntropyOptions& options = {.reduction = LossReduction::sum}) {
  const int64_t classes = static_cast<int64_t>(logits.size());
  const Tensor w = requires_grad_(Tensor::of(logits, {classes, 1}));
  const Tensor loss = linear_cross_entropy(Tensor::of(Row{1}, {1, 1}), w, Tensor::of(target, {1, classes}), options);
  const Tensor outputs[] = {loss}, inputs[] = {w};
  return {detach(loss), reshape(grad(outputs, inputs)[0], {-1})};
}

struct Expected {
  long double loss = 0;
  std::vector<long double> gradient, scale;  // scale: the larger of the two terms that the gradient is a difference of
};
Expected expected_of(const Row& logits, const Row& target) {
  size_t first = 0;
  for (size_t i = 0; i < logits.size(); ++i) first = logits[i] > logits[first] ? i : first;
  const auto power = [&](size_t i) { return std::exp(static_cast<long double>(logits[i]) - logits[first]); };
  long double rest = 0;
  for (size_t i = 0; i < logits.size(); ++i) rest += i == first ? 0 : power(i);
  Expected e;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (target[i] != 0)
      e.loss += target[i] * ((static_cast<long double>(logits[first]) - logits[i]) + std::log1p(rest));
    long double others = 0, weights = 0;
    for (size_t k = 0; k < logits.size(); ++k) others += k == i ? 0 : power(k), weights += k == i ? 0 : target[k];
    const long double up = power(i) / (1 + rest) * weights, down = target[i] * others / (1 + rest);
    e.gradient.push_back(up - down);
    e.scale.push_back(std::max(up, down));
  }
  return e;
}

double ulps(float got, long double want, long double scale) {
  if (scale == 0) return got == 0 ? 0 : INFINITY;
  return static_cast<double>(std::fabs(got - want) / std::ldexp(1.0L, std::max(std::ilogb(scale), -126) - 23));
}

void expect_exact(const Row& logits, const Row& target, const char* what) {
  const Expected want = expected_of(logits, target);
  const Result got = loss_of(logits, target);
  EXPECT_LE(ulps(got.loss.data<float>()[0], want.loss, want.loss), 4)
      << what << ": " << got.loss.data<float>()[0] << " instead of " << want.loss;
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_LE(ulps(got.gradient.data<float>()[i], want.gradient[i], want.scale[i]), 4)
        << what << " class " << i << ": " << got.gradient.data<float>()[i] << " instead of " << want.gradient[i];
  }
}

struct Case {
  const char* name;
  Row logits, target;
};
const Case kCases[] = {
    {"one class", {30, 20, 19}, {1, 0, 0}},
    {"nearly one class", {30, 18, 17, 16}, {1 - 0x1p-17f, 0x1p-18f, 0x1p-18f, 0}},
    {"nearly another class", {16, 30, 17, 18}, {0x1p-20f, 1 - 0x1p-19f, 0, 0x1p-20f}},
    {"two halves", {24, 24, 3}, {0.5f, 0.5f, 0}},
    {"even", {2, 2, 2, 2}, {0.25f, 0.25f, 0.25f, 0.25f}},
    {"first class masked with -1e30", {-1e30f, 5, 4, -3}, {0, 0.75f, 0.25f, 0}},
    {"first class masked with -inf", {-kInf, 5, 4, -3}, {0, 0.75f, 0.25f, 0}},
    {"last class masked with -inf", {5, 4, -3, -kInf}, {0.75f, 0.25f, 0, 0}},
    {"first class far above", {1e6f, 5, 4}, {1, 0, 0}},
    {"first class far below", {-1e6f, 30, 20}, {0, 1, 0}},
    {"weights that are no probabilities", {3, -2, 7}, {4, 0.5f, 9}},
};

TEST(ProbabilityLosses, KeepTheirDigits) {
  for (const Case& c : kCases) expect_exact(c.logits, c.target, c.name);
}

// The same gradient by way of logarithms y, of which a probability has |y| / 2 ULP more than its own.
TEST(ProbabilityLosses, AsProductsWithLogSoftmaxKeepTheDigitsOfTheGradient) {
  for (const Case& c : kCases) {
    const int64_t classes = static_cast<int64_t>(c.logits.size());
    if (std::isinf(c.logits.front()) || std::isinf(c.logits.back())) continue;  // 0 times infinity
    const Tensor x = requires_grad_(Tensor::of(c.logits, {1, classes}));
    const Tensor outputs[] = {log_softmax(x, 1)}, inputs[] = {x},
                 cotangents[] = {neg(Tensor::of(c.target, {1, classes}))};
    const Tensor got = grad(outputs, inputs, cotangents)[0];
    const Expected want = expected_of(c.logits, c.target);
    for (size_t i = 0; i < c.logits.size(); ++i) {
      const double y = std::fabs(outputs[0].data<float>()[i]);
      if (y > 80) continue;  // its probability is 0 or nearly a denormal
      EXPECT_LE(ulps(got.data<float>()[i], want.gradient[i], want.scale[i]), 4 + y) << c.name << " class " << i;
    }
  }
}

TEST(ProbabilityLosses, KeepTheirDigitsInManyLeavesOfClasses) {
  for (const size_t hit : {size_t{0}, size_t{700}, size_t{1999}}) {
    Row logits, target(2000);
    for (int i = 0; i < 2000; ++i) logits.push_back(i < 600 ? -1e30f : static_cast<float>((i * 7919) % 257 - 128) / 16);
    logits[hit] = 40;
    target[hit] = 1 - 0x1p-12f;
    target[1000] = 0x1p-12f;
    expect_exact(logits, target, "a leaf and more is masked");
  }
}

TEST(ProbabilityLosses, HaveTheBitsOfAnyChunksAlsoWithMaskedClasses) {
  Row logits, target;
  for (int i = 0; i < 3000; ++i) {
    logits.push_back(
        i < 700 || i % 5 == 0 ? -kInf : static_cast<float>((i * 7919) % 257 - 128) / 16 + static_cast<float>(i / 512));
    target.push_back(logits.back() == -kInf ? 0 : static_cast<float>(i % 7) / 8192);
  }
  const Result whole = loss_of(logits, target);
  EXPECT_TRUE(std::isfinite(whole.loss.data<float>()[0]));
  for (const int64_t classes : {375, 750, 1500}) {
    const Result parts = loss_of(logits, target, {.reduction = LossReduction::sum, .chunk_classes = classes});
    expect_same_bits(parts.loss, whole.loss, "loss");
    expect_same_bits(parts.gradient, whole.gradient, "gradient");
  }
}

TEST(ProbabilityLosses, OfAMaskedClassWithProbabilityIsInfiniteAndOfARowThatIsMaskedIsNaN) {
  EXPECT_EQ(loss_of({-kInf, 5, 4}, {0.5f, 0.5f, 0}).loss.data<float>()[0], kInf);
  EXPECT_TRUE(std::isnan(loss_of({-kInf, -kInf}, {1, 0}).loss.data<float>()[0]));
}

}  // namespace
}  // namespace tutti
