// AUC and calibration against their definitions, which look at every pair of examples.
#include "tutti/nn/click_metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/message_of.h"
#include "tutti/core/error.h"
#include "tutti/core/philox.h"
#include "tutti/ops/cast.h"

namespace tutti::nn {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();

struct Example {
  float score, label, weight;
};

uint32_t draw(uint32_t i, uint32_t stream) { return philox4x32({i, 0, 0, 0}, {7, stream})[0]; }

// `kinds` different scores, some negative, so that with few kinds most pairs are ties.
std::vector<Example> random_examples(uint32_t count, uint32_t kinds, uint32_t stream) {
  std::vector<Example> examples;
  for (uint32_t i = 0; i < count; ++i) {
    const float score = (static_cast<float>(draw(i, stream) % kinds) - static_cast<float>(kinds / 2)) / 16;
    const float weight = static_cast<float>(draw(i, stream + 1) % 1000) / 137;
    examples.push_back({score, static_cast<float>(draw(i, stream + 2) % 3 == 0), weight});
  }
  return examples;
}

double defined_auc(const std::vector<Example>& examples, bool weighted) {
  long double ordered = 0, pairs = 0;
  for (const Example& p : examples)
    for (const Example& n : examples) {
      if (p.label != 1 || n.label != 0) continue;
      const long double weight = weighted ? static_cast<long double>(p.weight) * n.weight : 1;
      pairs += weight;
      ordered += weight * (p.score > n.score ? 1.0L : p.score == n.score ? 0.5L : 0.0L);
    }
  return static_cast<double>(ordered / pairs);
}

Tensor column(const std::vector<Example>& examples, float Example::* member) {
  Tensor t = Tensor::empty({static_cast<int64_t>(examples.size())}, DType::f32);
  for (size_t i = 0; i < examples.size(); ++i) t.data<float>()[i] = examples[i].*member;
  return t;
}

template <class Metric>
Metric metric_of(const std::vector<Example>& examples, bool weighted) {
  Metric metric;
  metric.add(column(examples, &Example::score), column(examples, &Example::label),
             weighted ? column(examples, &Example::weight) : Tensor());
  return metric;
}
double auc_of(const std::vector<Example>& examples, bool weighted = false) {
  return metric_of<RocAuc>(examples, weighted).value();
}

TEST(RocAuc, IsTheShareOfOrderedPairs) {
  for (const uint32_t kinds : {1u, 2u, 9u, 100000u})
    for (const uint32_t count : {2u, 3u, 17u, 400u}) {
      const std::vector<Example> examples = random_examples(count, kinds, kinds + count);
      for (const bool weighted : {false, true}) {
        const double expected = defined_auc(examples, weighted), found = auc_of(examples, weighted);
        if (std::isnan(expected)) EXPECT_TRUE(std::isnan(found));
        else EXPECT_NEAR(found, expected, 4 * std::numeric_limits<double>::epsilon()) << count << " of " << kinds;
      }
    }
}

// With ascending scores the ordered pairs are counted on the way, for more examples than pairs could be looked at.
TEST(RocAuc, IsExactForMillionsOfExamples) {
  constexpr int64_t n = 3'000'000;
  Tensor scores = Tensor::empty({n}, DType::f32), labels = Tensor::empty({n}, DType::i32);
  __int128 ordered = 0, negatives = 0;
  for (int64_t i = 0; i < n; ++i) {
    scores.data<float>()[i] = static_cast<float>(i);
    labels.data<int32_t>()[i] = draw(static_cast<uint32_t>(i), 3) % 3 == 0;
    if (labels.data<int32_t>()[i] == 1) ordered += negatives;
    else ++negatives;
  }
  RocAuc auc;
  auc.add(scores, labels);
  const auto exact = static_cast<long double>(ordered) / (static_cast<long double>(negatives) * (n - negatives));
  EXPECT_NEAR(auc.value(), static_cast<double>(exact), 4 * std::numeric_limits<double>::epsilon());
}

TEST(RocAuc, KnowsTheEndsOfItsRange) {
  EXPECT_EQ(auc_of({{0.1f, 0, 1}, {0.2f, 0, 1}, {0.3f, 1, 1}}), 1);
  EXPECT_EQ(auc_of({{0.1f, 1, 1}, {0.2f, 0, 1}, {0.3f, 0, 1}}), 0);
  EXPECT_EQ(auc_of({{-0.0f, 1, 1}, {0.0f, 0, 1}}), 0.5) << "zeros of both signs are equal";
  EXPECT_EQ(auc_of({{-kInfinity, 0, 1}, {kInfinity, 1, 1}, {kInfinity, 0, 1}}), 0.75);
}

TEST(RocAuc, IsNaNWithoutBothClasses) {
  EXPECT_TRUE(std::isnan(RocAuc().value()));
  EXPECT_TRUE(std::isnan(auc_of({{1, 1, 1}, {2, 1, 1}})));
  EXPECT_TRUE(std::isnan(auc_of({{1, 0, 1}})));
  EXPECT_TRUE(std::isnan(auc_of({{1, 0, 0}, {2, 1, 1}}, true))) << "a weight of 0 is no example";
  RocAuc none;
  none.add(Tensor::empty({0}, DType::f32), Tensor::empty({0}, DType::f32));
  EXPECT_TRUE(std::isnan(none.value()));
}

TEST(RocAuc, CountsNaNScores) {
  const RocAuc auc = metric_of<RocAuc>({{1, 0, 1}, {2, 1, 1}, {kNaN, 1, 1}}, false);
  EXPECT_TRUE(std::isnan(auc.value()));
  EXPECT_EQ(auc.nan_scores(), 1);
  EXPECT_EQ(auc_of({{1, 0, 1}, {2, 1, 1}, {kNaN, 1, 0}}, true), 1) << "its weight is 0";
}

TEST(RocAuc, ReadsOtherDtypesAndViews) {
  const std::vector<Example> examples = random_examples(40, 30, 5);
  const Tensor scores = column(examples, &Example::score), labels = column(examples, &Example::label);
  const double expected = auc_of(examples);
  for (const DType dtype : {DType::bf16, DType::f16, DType::f64}) {
    RocAuc auc;
    auc.add(cast(scores, dtype), cast(labels, DType::boolean));
    EXPECT_EQ(auc.value(), expected) << "multiples of 1/16 below 2 are exact in " << name_of(dtype);
  }
  Tensor wide = Tensor::empty({40, 2}, DType::f32);
  for (int64_t i = 0; i < 40; ++i)
    wide.data<float>()[2 * i] = scores.data<float>()[i], wide.data<float>()[2 * i + 1] = kNaN;
  RocAuc auc;
  auc.add(wide.view_as({40}, {2}, 0), labels);
  EXPECT_EQ(auc.value(), expected);
}

TEST(RocAuc, RefusesWhatIsNoExample) {
  RocAuc auc;
  const auto one = [](float value) { return Tensor::scalar(value); };
  EXPECT_EQ(message_of([&] { auc.add(one(1), one(0.5f)); }), "RocAuc: the label of example 0 is 0.5; expected 0 or 1");
  EXPECT_EQ(message_of([&] { auc.add(one(1), one(1), one(-1)); }),
            "RocAuc: the weight of example 0 is -1; expected a finite number, 0 or more");
  EXPECT_EQ(message_of([&] { auc.add(one(1), one(1), one(kNaN)); }),
            "RocAuc: the weight of example 0 is nan; expected a finite number, 0 or more");
  EXPECT_NE(message_of([&] { auc.add(one(1), Tensor::empty({2}, DType::f32)); }).find("expected the same size"),
            std::string::npos);
  EXPECT_NE(message_of([&] { auc.add(one(1), Tensor()); }).find("expected the same size"), std::string::npos);
  EXPECT_EQ(auc.examples(0) + auc.examples(1), 0);
}

double defined_calibration(const std::vector<Example>& examples, bool weighted) {
  long double predicted = 0, labels = 0;
  for (const Example& e : examples) {
    const long double weight = weighted ? e.weight : 1;
    predicted += weight * e.score;
    labels += weight * e.label;
  }
  return static_cast<double>(predicted / labels);
}

TEST(Calibration, IsPredictionsOverLabels) {
  for (const bool weighted : {false, true}) {
    std::vector<Example> examples = random_examples(500, 30, 9);
    for (Example& e : examples) e.score = std::abs(e.score) + 0.01f;
    const auto calibration = metric_of<Calibration>(examples, weighted);
    EXPECT_DOUBLE_EQ(calibration.value(), defined_calibration(examples, weighted));
    EXPECT_DOUBLE_EQ(calibration.mean_prediction() / calibration.mean_label(), calibration.value());
  }
}

TEST(Calibration, SaysWhenNothingIsPositive) {
  EXPECT_EQ(metric_of<Calibration>({{0.5f, 0, 1}}, false).value(), kInfinity);
  EXPECT_TRUE(std::isnan(Calibration().value()));
  EXPECT_TRUE(std::isnan(metric_of<Calibration>({{kNaN, 1, 1}}, false).value()));
  EXPECT_EQ(metric_of<Calibration>({{kNaN, 1, 0}, {0.5f, 1, 2}}, true).value(), 0.5) << "a weight of 0 is no example";
}

// In parts, in another order, through bytes: the bits of one call.
template <class Metric>
void expect_bits_of_one_call(bool weighted) {
  std::vector<Example> examples = random_examples(301, 20, 11);
  const uint64_t expected = std::bit_cast<uint64_t>(metric_of<Metric>(examples, weighted).value());
  for (const size_t ranks : {1, 2, 3, 7}) {
    std::vector<std::vector<Example>> parts(ranks);
    for (size_t i = 0; i < examples.size(); ++i) parts[(i * 5 + ranks) % ranks].push_back(examples[i]);
    Metric all;
    for (size_t r = ranks; r-- > 0;) {
      std::reverse(parts[r].begin(), parts[r].end());
      all.add(Metric::from_bytes(metric_of<Metric>(parts[r], weighted).to_bytes()));
    }
    EXPECT_EQ(std::bit_cast<uint64_t>(all.value()), expected) << ranks << " ranks";
  }
}

TEST(ClickMetrics, HaveTheBitsOfOneCallInAnyParts) {
  for (const bool weighted : {false, true}) {
    expect_bits_of_one_call<RocAuc>(weighted);
    expect_bits_of_one_call<Calibration>(weighted);
  }
}

TEST(ClickMetrics, AddingOneToItselfDoublesItsExamples) {
  const std::vector<Example> examples = random_examples(50, 10, 13);
  auto auc = metric_of<RocAuc>(examples, false);
  const double before = auc.value();
  auc.add(auc);
  EXPECT_EQ(auc.examples(0) + auc.examples(1), 100);
  EXPECT_DOUBLE_EQ(auc.value(), before);
  auto calibration = metric_of<Calibration>(examples, false);
  const double ratio = calibration.value();
  calibration.add(calibration);
  EXPECT_EQ(calibration.value(), ratio);
}

TEST(Calibration, IsExactInTheRangeOfItsHeader) {
  const auto ratio = [](float probability, float weight) {
    Calibration calibration;
    calibration.add(Tensor::of<float>({probability}), Tensor::of<float>({1}), Tensor::of<float>({weight}));
    return calibration.value() * static_cast<double>(weight);
  };
  for (const auto& [p, w] : {std::pair{0x1.fffffep-1f, 0x1.fffffep+127f}, {0x1.fffffep-51f, 0x1.fffffep-52f}})
    EXPECT_EQ(ratio(p, w), static_cast<double>(p) * static_cast<double>(w));
  EXPECT_EQ(ratio(10, 1e38f), INFINITY) << "beyond f32";
  EXPECT_EQ(ratio(0x1p-100f, 0x1p-100f), 0) << "below half of the smallest f32";
}

TEST(ClickMetrics, RefuseBytesOfSomethingElse) {
  const std::string good = metric_of<RocAuc>(random_examples(9, 4, 1), false).to_bytes();
  std::string damaged = good;
  damaged[0] = 77;
  for (const std::string& bytes : {std::string(), good.substr(1), good + "x", good + std::string(8, 'x'), damaged})
    EXPECT_THROW(RocAuc::from_bytes(bytes), EnvironmentError);
  std::string nan = good;
  std::memcpy(nan.data() + 24, &kNaN, sizeof kNaN);
  EXPECT_THROW(RocAuc::from_bytes(nan), EnvironmentError);
  EXPECT_THROW(Calibration::from_bytes(good), EnvironmentError);
  const std::string sums = Calibration().to_bytes();
  EXPECT_EQ(Calibration::from_bytes(sums).to_bytes(), sums);
  for (size_t sum = 1; sum <= 3; ++sum) {  // the last word of each counts negative infinities
    std::string negative = sums;
    const int64_t count = -1;
    std::memcpy(negative.data() + sum * ExactSum::kWords * sizeof count - sizeof count, &count, sizeof count);
    EXPECT_THROW(Calibration::from_bytes(negative), EnvironmentError);
  }
}

}  // namespace
}  // namespace tutti::nn
