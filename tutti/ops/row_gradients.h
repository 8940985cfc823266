// Sparse gradients of embedding tables: only the rows that a batch uses.
#pragma once

#include <span>

#include "tutti/ops/embedding.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// The number of rows used is only known after the batch has run. The tensors have the largest possible size K instead,
// so that no size in a compiled function depends on data.
struct RowGradients {
  Tensor rows;    // [K] i64: distinct row numbers in ascending order, then -1
  Tensor values;  // [K, D]: the gradient of each row, then -0.0
  Tensor count;   // [] i64: the number of rows used

  // Views of the first `count` rows. Reads `count` on the host.
  RowGradients trimmed() const;
};

// The gradient of embedding with respect to its table, with the bits of embedding_backward's rows.
// Shapes: indices [...], grad [..., D]; K is the number of indices or `vocab`, whichever is less. Dtypes and errors are
// those of embedding_backward.
RowGradients embedding_row_gradients(const Tensor& grad, const Tensor& indices, int64_t vocab,
                                     int64_t padding_idx = kNoPadding);

// The sum of several gradients of one table of `vocab` rows, added row by row in the order given, first use first
// (numerics contract, N5). UsageError for an empty list or for different widths or dtypes.
RowGradients add_row_gradients(std::span<const RowGradients> uses, int64_t vocab);

}  // namespace tutti
