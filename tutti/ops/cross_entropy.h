// Cross entropy of class logits.
#pragma once

#include "tutti/tensor/tensor.h"

namespace tutti {

inline constexpr int64_t kIgnoreLabel = -100;

// Loss of each row: logsumexp(logits) - logits[label], in f32 (f64 for f64); 0 where the label is kIgnoreLabel.
// The statistics are the monoid (m, r) of numerics contract N10 over the classes, the maximum and the sum of exp(logit - m)
// without the first maximum, so that a small loss and its gradient keep their digits whatever the size of the logits. They are
// combined by halving as a product that contracts over classes: a vocabulary is cut over ranks where both trees have a border.
// Divide by the number of valid labels yourself: it is a number of the whole batch, not of this tensor.
// Max error of loss and gradient: 2 ULP where the differences of logits are exact and few of them matter; else that of the
// differences, rounded at their own size, and of the sum over classes.
// Shapes: logits [T, V], labels [T] (i64 or i32) -> [T]. Errors: a label outside [0, V) that is not kIgnoreLabel.
Tensor cross_entropy(const Tensor& logits, const Tensor& labels);

// Classes per leaf of the statistics. Tests lower it to cut tiny vocabularies.
int64_t class_leaf();
class ClassLeafScope {
 public:
  explicit ClassLeafScope(int64_t leaf);  // process-wide while it lives
  ~ClassLeafScope();
  ClassLeafScope(const ClassLeafScope&) = delete;
  ClassLeafScope& operator=(const ClassLeafScope&) = delete;

 private:
  int64_t previous_;
};

}  // namespace tutti
