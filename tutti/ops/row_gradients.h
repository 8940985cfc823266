// Gradients of tables in sparse form: only the rows that a batch touches.
#pragma once

#include <span>

#include "tutti/ops/embedding.h"
#include "tutti/tensor/tensor.h"

namespace tutti {

// How many rows a batch touches is known when it ran; the sizes hold as many as there can be, so that a compiled function
// needs no sizes from memory.
struct RowGradients {
  Tensor rows;    // [K] i64: distinct, ascending; behind the last one -1
  Tensor values;  // [K, D]: what is added up for each; behind the last one -0.0
  Tensor count;   // [] i64: of rows

  // Views of the rows that are there. Reads `count`.
  RowGradients trimmed() const;
};

// The gradient of embedding with respect to its table, the bits of embedding_backward's rows.
// Shapes: grad has the sizes of indices and D; K is the number of indices, at most `vocab`. Dtypes, Error: as there.
RowGradients embedding_row_gradients(const Tensor& grad, const Tensor& indices, int64_t vocab, int64_t padding_idx = kNoPadding);

// The sum of gradients of one table of `vocab` rows, row by row in the order given: first use first (numerics contract,
// N5). Error: different widths or dtypes, none at all.
RowGradients add_row_gradients(std::span<const RowGradients> uses, int64_t vocab);

}  // namespace tutti
