// The gradient of the weights of samples of table-batched embedding bags.
#pragma once

#include <span>

#include "tutti/ops/table_batched_backward.h"

namespace tutti {

// The gradient of per_sample_weights [P], in f32 (f64 for f64): for each entry the inner product of the gradient of its
// bag, for a mean divided by the number of its entries, with its row, in the tree of reductions (N3).
Tensor table_batched_weights_backward(std::span<const Tensor> tables, const TableUse& use,
                                      const TableBatchOptions& options = {});

}  // namespace tutti
