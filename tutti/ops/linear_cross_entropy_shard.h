// Linear cross entropy whose classes, the rows of weight, are divided over ranks (vocabulary parallelism).
//
// Each rank computes the statistics of its classes, chunk by chunk; the statistics are combined in rank order by
// halving, and cross_entropy_of() gives the loss (cross_entropy_shard.h). Ranks exchange three numbers per row, never
// logits. The gradient of the input is a sum over classes: each rank returns its f32 part, and the parts are to be
// added over ranks by halving. When the classes are divided by tree_cut(V, max(class_leaf(), 128), ...), loss and
// gradients have the bits of linear_cross_entropy on the whole weight (numerics contract, N10).
#pragma once

#include "tutti/ops/cross_entropy_shard.h"
#include "tutti/ops/linear_cross_entropy.h"

namespace tutti {

// As in LinearCrossEntropyOptions; `bias` belongs to this rank's classes. Rows with the label kIgnoreLabel are ignored.
struct LinearShardOptions {
  Tensor bias = {};
  double softcap = 0;
  DType logits_dtype = DType::f32;
  int64_t max_bytes = kDefaultLossBytes;
  int64_t chunk_rows = 0, chunk_classes = 0;
};

// The statistics of the classes [first_class, first_class + C). Shapes: input [N, F], weight [C, F], labels [N],
// numbered over the whole vocabulary. Neither this function nor the one below is differentiable.
ClassStatistics linear_class_statistics(const Tensor& input, const Tensor& weight, const Tensor& labels,
                                        int64_t first_class, const LinearShardOptions& options = {});

struct LinearShardNeeds {
  bool input = true, weight = true, bias = false;
};
struct LinearShardGradients {
  Tensor input, weight, bias;  // f32 (f64 for f64), undefined where not needed; `input` is this rank's part of the sum
};
// The gradients for `grad` [N], the cotangent of the loss, given the statistics of all classes.
LinearShardGradients linear_cross_entropy_shard_backward(const Tensor& input, const Tensor& weight, const Tensor& grad,
                                                         const Tensor& labels, const ClassStatistics& all,
                                                         int64_t first_class, const LinearShardNeeds& need = {},
                                                         const LinearShardOptions& options = {});

}  // namespace tutti
