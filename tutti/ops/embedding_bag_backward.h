// Gradients of embedding_bag.
#pragma once

#include "tutti/ops/embedding_bag.h"
#include "tutti/ops/row_gradients.h"

namespace tutti {

// The gradient of embedding_bag with respect to its table of `vocab` rows, in f32 (f64 for f64): dense, and in sparse
// form. The gradient of a bag is first divided by the number of its rows (mean), then multiplied by the weight of the
// entry. The order of summation is that of embedding_backward with bags in place of tokens: ranges of token_grain()
// bags, added one after another within a range and combined by halving. `chosen`: for max, the result of
// embedding_bag_with_entries.
Tensor embedding_bag_backward(const Tensor& grad_BD, const Tensor& indices, const Tensor& offsets, int64_t vocab,
                              const BagOptions& options = {}, const Tensor& chosen = {});
RowGradients embedding_bag_row_gradients(const Tensor& grad_BD, const Tensor& indices, const Tensor& offsets,
                                         int64_t vocab, const BagOptions& options = {}, const Tensor& chosen = {});

// The gradient with respect to per_sample_weights, in f32 (f64 for f64): for each entry the inner product of the
// gradient of its bag with its row of the table, 0 for padding.
Tensor embedding_bag_weights_backward(const Tensor& grad_BD, const Tensor& weight, const Tensor& indices,
                                      const Tensor& offsets, const BagOptions& options = {});

}  // namespace tutti
