// Linear cross entropy whose classes, the rows of weight, are cut over ranks (vocabulary parallel).
//
// Each rank computes the statistics of its classes, chunk by chunk; they are combined in rank order by halving, and
// cross_entropy_of() gives the loss (cross_entropy_shard.h): three numbers a row travel, never logits. The gradient of
// the input is a sum over classes: each rank gives its part, f32, to be added over ranks by halving. When the cut follows
// tree_cut(V, max(class_leaf(), 128), ...), all have the bits of linear_cross_entropy on the whole weight (numerics contract, N10).
#pragma once

#include "tutti/ops/cross_entropy_shard.h"
#include "tutti/ops/linear_cross_entropy.h"

namespace tutti {

// As in LinearCrossEntropyOptions; `bias` is that of this rank's classes. Rows to ignore have kIgnoreLabel.
struct LinearShardOptions {
  Tensor bias = {};
  double softcap = 0;
  DType logits_dtype = DType::f32;
  int64_t max_bytes = kDefaultLossBytes;
  int64_t chunk_rows = 0, chunk_classes = 0;
};

// Of the classes [first_class, first_class + C). Shapes: input [N, F], weight [C, F], labels [N] (numbers of the whole
// vocabulary). Not differentiable, as is the function below.
ClassStatistics linear_class_statistics(const Tensor& input, const Tensor& weight, const Tensor& labels, int64_t first_class,
                                        const LinearShardOptions& options = {});

struct LinearShardNeeds {
  bool input = true, weight = true, bias = false;
};
struct LinearShardGradients {
  Tensor input, weight, bias;  // undefined where not needed; f32 (f64 for f64); input: this rank's part of the sum
};
// Gives the gradients for `grad` [N], the cotangent of the loss, from the statistics of all classes.
LinearShardGradients linear_cross_entropy_shard_backward(const Tensor& input, const Tensor& weight, const Tensor& grad, const Tensor& labels,
                                                         const ClassStatistics& all, int64_t first_class, const LinearShardNeeds& need = {},
                                                         const LinearShardOptions& options = {});

}  // namespace tutti
