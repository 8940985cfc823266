// Cross entropy of class logits.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

inline constexpr int64_t kIgnoreLabel = -100;

// The loss of each row: logsumexp(logits) - logits[label], in f32 (f64 for f64); 0 where the label is kIgnoreLabel.
// The statistics of a row are the monoid (m, r) of numerics contract N10 over the classes: m is the maximum and r is
// the sum of exp(logit - m) over all classes but the first that has the maximum, so that a small loss and its gradient
// stay accurate however large the logits are. The classes are combined by halving, like a matrix product that contracts
// over classes, so a vocabulary can be divided over ranks where both trees have a border. The result is not divided by
// the number of valid labels, since that is a property of the whole batch, not of this tensor. Max error of loss and
// gradient: 2 ULP where the differences of logits are exact and few of them matter; otherwise the rounding errors of
// the differences and of the sum over classes. Shapes: logits [T, V], labels [T] (i64 or i32) -> [T]. UsageError for a
// label outside [0, V) that is not kIgnoreLabel.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);

// Classes per leaf of the statistics. Tests lower it so that tiny vocabularies can be divided.
int64_t class_leaf();
class ClassLeafScope {
 public:
  explicit ClassLeafScope(int64_t leaf);  // applies to the whole process while the scope lives
  ~ClassLeafScope();
  ClassLeafScope(const ClassLeafScope&) = delete;
  ClassLeafScope& operator=(const ClassLeafScope&) = delete;

 private:
  int64_t previous_;
};

}  // namespace tutti
