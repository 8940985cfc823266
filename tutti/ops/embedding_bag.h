// Rows of a table, looked up by number and pooled bag by bag.
#pragma once

#include "tutti/ops/embedding.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

enum class BagMode : uint8_t { sum, mean, max };

struct BagOptions {
  BagMode mode = BagMode::sum;
  int64_t padding_idx = kNoPadding;  // entries with this row are left out: of sums, of the count of a mean, of maxima
  bool include_last_offset = false;  // offsets has one element more, the number of indices
  Tensor per_sample_weights;         // floats of the sizes of indices: each row is multiplied by its own first; not with max
};

// y[b] pools the rows weight[indices[offsets[b]]], ..., weight[indices[offsets[b + 1] - 1]]; the last bag ends with the
// indices. Sums are one chain in the order of the bag, in f32 (f64 for f64), rounded once; a mean is the sum divided by the
// number of rows; of equal maxima the first counts, NaN is above all. A bag without rows gives zeros.
// Shapes: weight [V, D], indices [P], offsets [B] (or [B + 1]) -> [B, D]; or indices [B, L] and no offsets: B bags of L.
// Dtypes: weight any float, indices and offsets i64 or i32. Errors: an index outside [0, V), named with its bag;
// offsets that do not start at 0, fall, or reach beyond the indices.
// Gradient: of the table (tutti/ops/embedding_bag_backward.h) and of per_sample_weights. Source: definition.
Tensor embedding_bag(const Tensor& weight, const Tensor& indices, const Tensor& offsets, const BagOptions& options = {});
Tensor embedding_bag(const Tensor& weight, const Tensor& indices_BL, const BagOptions& options = {});

// The same and, for max, where each element comes from: its entry, a position in indices, -1 in a bag without rows.
struct BagResult {
  Tensor pooled;
  Tensor chosen;  // [B, D] i64; undefined for sum and mean
};
BagResult embedding_bag_with_entries(const Tensor& weight, const Tensor& indices, const Tensor& offsets, const BagOptions& options = {});

}  // namespace tutti
