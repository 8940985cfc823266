// Cross entropy of logits whose classes are divided over ranks (vocabulary parallelism).
//
// Each rank computes the statistics of its classes, the statistics are combined in rank order by halving, and each rank
// computes the gradient of its own logits. When the classes are divided by tree_cut(classes, class_leaf(), ...), loss
// and gradients have the bits of cross_entropy on whole rows (numerics contract, N10).
#pragma once

#include "tutti/ops/cross_entropy.h"

namespace tutti {

struct ClassStatistics {
  Tensor maximum;  // [T]
  Tensor rest;     // [T]: sum of exp(logit - maximum) over all of these classes but the first that has the maximum
  Tensor target;   // [T]: the logit of the label, or -0.0 where the label is a class of another rank
};

// The statistics of the classes [first_class, first_class + C). Shapes: logits [T, C], labels [T], numbered over the
// whole vocabulary of `classes`. Dtypes of the results: f32 (f64 for f64). This function and those below are not
// differentiable. UsageError for a label that is neither below `classes` nor kIgnoreLabel; with classes = 0 labels are
// not checked.
ClassStatistics class_statistics(const Tensor& logits, const Tensor& labels, int64_t first_class, int64_t classes = 0);
// The statistics of the classes of `a` followed by those of `b`.
ClassStatistics combine(const ClassStatistics& a, const ClassStatistics& b);

// The loss of each row, [T], from the statistics of all classes; 0 where the label is kIgnoreLabel. The logsumexp of a
// row is maximum + log1p(rest).
Tensor cross_entropy_of(const ClassStatistics& all, const Tensor& labels);

// The gradient of this rank's logits, (softmax - [label]) * grad, with the dtype of `logits`, from the statistics of
// all classes. Shapes: logits [T, C], grad and labels [T] -> [T, C].
Tensor cross_entropy_shard_backward(const Tensor& logits, const Tensor& grad, const Tensor& labels,
                                    const ClassStatistics& all, int64_t first_class);

}  // namespace tutti
