// Embedding bags: rows of a table, selected by index and pooled bag by bag.
#pragma once

#include "tutti/ops/bag_mode.h"
#include "tutti/ops/embedding.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

struct BagOptions {
  BagMode mode = BagMode::sum;
  int64_t padding_idx = kNoPadding;  // entries with this index are skipped, and not counted by a mean
  bool include_last_offset = false;  // offsets has one more element at the end, the number of indices
  Tensor per_sample_weights;  // floats, shaped like indices: a factor for each looked-up row; not for BagMode::max
};

// y[b] pools the rows weight[indices[offsets[b]]], ..., weight[indices[offsets[b + 1] - 1]]; the last bag extends to
// the end of the indices. A sum adds the rows one after another in the order of the bag, in f32 (f64 for f64), and is
// rounded once; a mean is the sum divided by the number of rows; among equal maxima the first is chosen, and NaN is
// larger than every number. An empty bag gives zeros. Shapes: weight [V, D], indices [P], offsets [B] (or [B + 1]) ->
// [B, D]; without offsets, indices [B, L] are B bags of length L. Dtypes: weight any float, indices and offsets i64 or
// i32. UsageError for an index outside [0, V), naming its bag, and for offsets that do not start at 0, decrease, or
// exceed the number of indices. Gradients: of the table (tutti/ops/embedding_bag_backward.h) and of per_sample_weights.
// Source: definition.
Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                     const BagOptions& options = {});
Tensor embedding_bag(const Tensor& weight, const Tensor& indices_BL, const BagOptions& options = {});

// The same, and for max also the entry that each element comes from: its position in indices, or -1 for an empty bag.
struct BagResult {
  Tensor pooled;
  Tensor chosen;  // [B, D] i64; undefined for sum and mean
};
BagResult embedding_bag_with_entries(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                                     const BagOptions& options = {});

}  // namespace tutti
