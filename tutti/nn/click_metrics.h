// What a model of clicks is measured by: how well it orders examples (AUC), and whether it predicts as many clicks as
// come (calibration).
//
// Examples come in any number of calls, and from any number of ranks: the values depend only on which examples were
// added, with the same bits whatever the order, the calls and the ranks (parallel/merged_metric.h). An object belongs
// to one thread at a time.
//
//   nn::RocAuc auc;
//   for (...) auc.add(logits, labels);
//   auc.value();
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/core/exact_sum.h"
#include "tutti/tensor/tensor.h"

namespace tutti::nn {

// The area under the receiver operating characteristic: the probability that a positive example has a higher score than
// a negative one, where equal scores count one half. It is exact over all examples, which take 8 bytes each.
class RocAuc {
 public:
  // Shapes: scores, labels and weights have the same size; labels are 0 or 1. Dtypes: any float, and for labels any
  // number; scores and weights are kept in f32. Give logits rather than probabilities, which are 1 in f32 for all
  // logits above 17. An example of weight w counts as w examples; one of weight 0 counts nothing. UsageError for sizes
  // that differ, other labels, and weights that are negative, infinite or NaN; then no example of the call is added.
  void add(const Tensor& scores, const Tensor& labels, const Tensor& weights = {});
  // All examples of another.
  void add(const RocAuc& other);

  // NaN when a class has no example, and when a score was NaN. Error: with weights that are whole numbers, 4 ULP.
  double value() const;
  int64_t examples(int label) const { return static_cast<int64_t>(of_label_[static_cast<size_t>(label)].size()); }
  int64_t nan_scores() const { return nan_scores_; }

  // The examples as bytes for a program of the same machine, such as another rank. EnvironmentError for other bytes.
  std::string to_bytes() const;
  static RocAuc from_bytes(std::string_view bytes);

 private:
  struct Example {
    float score, weight;
  };
  std::array<std::vector<Example>, 2> of_label_;
  int64_t nan_scores_ = 0;
};

// The sum of predicted probabilities divided by the sum of labels: above 1 where a model predicts too many clicks.
class Calibration {
 public:
  // As RocAuc::add(), but labels may be any numbers. Sums are exact where the product of value and weight is 0 or has a
  // magnitude of at least 2^-102 and less than 2^128. Below, a product loses at most 2^-150; above, it is infinite.
  void add(const Tensor& probabilities, const Tensor& labels, const Tensor& weights = {});
  void add(const Calibration& other);

  // Infinity when the labels add up to 0, and NaN when nothing was predicted either, or something was NaN.
  double value() const { return predicted_.value() / labels_.value(); }
  double mean_prediction() const { return predicted_.value() / weights_.value(); }
  double mean_label() const { return labels_.value() / weights_.value(); }

  // As those of RocAuc.
  std::string to_bytes() const;
  static Calibration from_bytes(std::string_view bytes);

 private:
  ExactSum predicted_{ExactTerm::value}, labels_{ExactTerm::value}, weights_{ExactTerm::value};
};

}  // namespace tutti::nn
