// Gradients of embedding_bag.
#pragma once

#include "tutti/ops/embedding_bag.h"
#include "tutti/ops/row_gradients.h"

namespace tutti {

// The gradient of embedding_bag with respect to its table of `vocab` rows, dense and in sparse form, in f32 (f64 for f64).
// `grad` is divided by the length of its bag first (mean), then multiplied by the entry's weight; the sums over bags are
// those of embedding_backward with bags in the place of tokens: ranges of token_grain() bags, a chain in each, halved.
// `chosen`: for max, of embedding_bag_with_entries.
Tensor embedding_bag_backward(const Tensor& grad_BD, const Tensor& indices, const Tensor& offsets, int64_t vocab,
                              const BagOptions& options = {}, const Tensor& chosen = {});
RowGradients embedding_bag_row_gradients(const Tensor& grad_BD, const Tensor& indices, const Tensor& offsets, int64_t vocab,
                                         const BagOptions& options = {}, const Tensor& chosen = {});

// The gradient with respect to per_sample_weights: <grad of the bag, row> for every entry, 0 for padding. In f32 (f64).
Tensor embedding_bag_weights_backward(const Tensor& grad_BD, const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                                      const BagOptions& options = {});

}  // namespace tutti
