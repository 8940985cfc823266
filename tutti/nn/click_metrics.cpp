#include "tutti/nn/click_metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/ops/cast.h"
#include "tutti/tensor/device_copy.h"

namespace tutti::nn {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

// The examples of a call in f32, row-major on the host.
struct Examples {
  Tensor scores, labels, weights;  // weights undefined: each is 1
  int64_t count = 0;

  float score(int64_t i) const { return scores.data<float>()[i]; }
  float label(int64_t i) const { return labels.data<float>()[i]; }
  float weight(int64_t i) const { return weights.defined() ? weights.data<float>()[i] : 1.0f; }
};

Examples examples_of(const char* what, const Tensor& scores, const Tensor& labels, const Tensor& weights) {
  const NoGradScope no_grad;
  const auto plain = [](const Tensor& t) { return to_contiguous(cast(to_device(t, kCpu), DType::f32)); };
  TUTTI_CHECK(scores.defined() && labels.defined() && scores.extents() == labels.extents(),
              "{}: scores are {} and labels {}; expected the same size", what, describe(scores), describe(labels));
  TUTTI_CHECK(!weights.defined() || weights.extents() == scores.extents(),
              "{}: scores are {} and weights {}; expected the same size", what, describe(scores), describe(weights));
  Examples e{plain(scores), plain(labels), weights.defined() ? plain(weights) : Tensor(), scores.numel()};
  for (int64_t i = 0; e.weights.defined() && i < e.count; ++i)
    TUTTI_CHECK(e.weight(i) >= 0 && std::isfinite(e.weight(i)),
                "{}: the weight of example {} is {}; expected a finite number, 0 or more", what, i, e.weight(i));
  return e;
}

// A sum that keeps what its additions and products round away.
struct Compensated {
  double sum = 0, rest = 0;
  void add_product(double a, double b) {
    const double product = a * b, lost = std::fma(a, b, -product);
    const double before = sum, part = before + product - before;
    sum = before + product;
    rest += (before - (sum - part)) + (product - part) + lost;
  }
};

std::string bytes_of(std::initializer_list<const ExactSum*> sums) {
  std::string bytes;
  for (const ExactSum* sum : sums) {
    const auto words = sum->words();
    bytes.append(reinterpret_cast<const char*>(words.data()), sizeof words);
  }
  return bytes;
}

}  // namespace

void RocAuc::add(const Tensor& scores, const Tensor& labels, const Tensor& weights) {
  const Examples e = examples_of("RocAuc", scores, labels, weights);
  for (int64_t i = 0; i < e.count; ++i)
    TUTTI_CHECK(e.label(i) == 0 || e.label(i) == 1, "RocAuc: the label of example {} is {}; expected 0 or 1", i,
                e.label(i));
  for (int64_t i = 0; i < e.count; ++i) {
    if (e.weight(i) == 0) continue;
    if (std::isnan(e.score(i))) ++nan_scores_;
    else of_label_[e.label(i) == 1].push_back({e.score(i) + 0.0f, e.weight(i)});  // -0 and 0 are equal
  }
}

void RocAuc::add(const RocAuc& other) {
  const std::array<std::vector<Example>, 2> added = other.of_label_;  // which may be this one
  for (size_t label : {0, 1}) of_label_[label].insert(of_label_[label].end(), added[label].begin(), added[label].end());
  nan_scores_ += other.nan_scores_;
}

// Going through the scores from below, each positive example is above the negative ones so far. All examples are put in
// one order first, so that the sums of weights do not depend on who brought them.
double RocAuc::value() const {
  if (nan_scores_ > 0) return kNaN;
  std::array<std::vector<Example>, 2> sorted = of_label_;
  for (std::vector<Example>& list : sorted)
    std::sort(list.begin(), list.end(), [](const Example& a, const Example& b) {
      return a.score != b.score ? a.score < b.score : a.weight < b.weight;
    });
  std::array<double, 2> below{};
  std::array<size_t, 2> at{};
  Compensated ordered;  // twice the pairs in order
  while (at[1] < sorted[1].size()) {
    float score = sorted[1][at[1]].score;
    if (at[0] < sorted[0].size()) score = std::min(score, sorted[0][at[0]].score);
    std::array<double, 2> equal{};
    for (size_t label : {0, 1})
      for (; at[label] < sorted[label].size() && sorted[label][at[label]].score == score; ++at[label])
        equal[label] += sorted[label][at[label]].weight;
    ordered.add_product(equal[1], 2 * below[0] + equal[0]);
    for (size_t label : {0, 1}) below[label] += equal[label];
  }
  for (; at[0] < sorted[0].size(); ++at[0]) below[0] += sorted[0][at[0]].weight;
  return (ordered.sum + ordered.rest) / (2 * below[0] * below[1]);
}

std::string RocAuc::to_bytes() const {
  const std::array<int64_t, 3> counts{examples(0), examples(1), nan_scores_};
  std::string bytes(reinterpret_cast<const char*>(counts.data()), sizeof counts);
  for (const std::vector<Example>& list : of_label_)
    bytes.append(reinterpret_cast<const char*>(list.data()), list.size() * sizeof(Example));
  return bytes;
}

RocAuc RocAuc::from_bytes(std::string_view bytes) {
  std::array<int64_t, 3> counts{};
  TUTTI_CHECK_ENV(bytes.size() >= sizeof counts, "RocAuc: {} bytes are no examples", bytes.size());
  std::memcpy(counts.data(), bytes.data(), sizeof counts);
  const std::string_view rest = bytes.substr(sizeof counts);
  const size_t held = rest.size() / sizeof(Example);
  TUTTI_CHECK_ENV(rest.size() % sizeof(Example) == 0 && counts[2] >= 0 && static_cast<size_t>(counts[0]) <= held &&
                      static_cast<size_t>(counts[1]) == held - static_cast<size_t>(counts[0]),
                  "RocAuc: {} bytes are not those of {} and {} examples", bytes.size(), counts[0], counts[1]);
  RocAuc auc;
  auc.nan_scores_ = counts[2];
  const char* from = rest.data();
  for (size_t label : {0, 1}) {
    std::vector<Example>& list = auc.of_label_[label];
    list.resize(static_cast<size_t>(counts[label]));
    if (!list.empty()) std::memcpy(list.data(), from, list.size() * sizeof(Example));
    from += list.size() * sizeof(Example);
    for (const Example& e : list)
      TUTTI_CHECK_ENV(!std::isnan(e.score) && e.weight > 0 && std::isfinite(e.weight),
                      "RocAuc: bytes with an example of score {} and weight {}", e.score, e.weight);
  }
  return auc;
}

// A product of two f32 values has 48 bits, which two f32 values hold.
void Calibration::add(const Tensor& probabilities, const Tensor& labels, const Tensor& weights) {
  const Examples e = examples_of("Calibration", probabilities, labels, weights);
  const auto add_weighted = [](ExactSum& sum, float value, float weight) {
    const double product = double{value} * weight;
    const float high = static_cast<float>(product);
    const float parts[] = {high, std::isfinite(high) ? static_cast<float>(product - high) : 0.0f};
    sum.add(parts);
  };
  const std::span<const float> ps(e.scores.data<float>(), static_cast<size_t>(e.count));
  const std::span<const float> ys(e.labels.data<float>(), static_cast<size_t>(e.count));
  if (e.weights.defined()) {
    for (int64_t i = 0; i < e.count; ++i) {
      if (e.weight(i) == 0) continue;
      add_weighted(predicted_, e.score(i), e.weight(i));
      add_weighted(labels_, e.label(i), e.weight(i));
    }
    weights_.add({e.weights.data<float>(), static_cast<size_t>(e.count)});
  } else {
    const std::vector<float> ones(ps.size(), 1.0f);
    predicted_.add(ps);
    labels_.add(ys);
    weights_.add(ones);
  }
}

void Calibration::add(const Calibration& other) {
  predicted_.add(ExactSum(other.predicted_));
  labels_.add(ExactSum(other.labels_));
  weights_.add(ExactSum(other.weights_));
}

std::string Calibration::to_bytes() const { return bytes_of({&predicted_, &labels_, &weights_}); }

Calibration Calibration::from_bytes(std::string_view bytes) {
  constexpr size_t each = ExactSum::kWords * sizeof(int64_t);
  TUTTI_CHECK_ENV(bytes.size() == 3 * each, "Calibration: {} bytes; expected {}", bytes.size(), 3 * each);
  Calibration made;
  for (ExactSum* sum : {&made.predicted_, &made.labels_, &made.weights_}) {
    std::array<int64_t, ExactSum::kWords> words{};
    std::memcpy(words.data(), bytes.data(), each);
    for (size_t i = 2 * ExactSum::kBins; i < words.size(); ++i)
      TUTTI_CHECK_ENV(words[i] >= 0, "Calibration: bytes with {} values that are not finite", words[i]);
    sum->set_words(words);
    bytes.remove_prefix(each);
  }
  return made;
}

}  // namespace tutti::nn
