// Gradients of table-batched embedding bags.
//
// The gradient of a row is a sum over its entries. The bags of a feature are cut into ranges of token_grain()
// consecutive bags; the entries of a row in one range are added in a chain in their order; the ranges of a batch, those
// of the table's first feature first, are combined by halving; and so are the batches of several virtual shards, of
// which number s is at place s of a tree over the next power of two (numerics contract, N5). Neither threads nor what
// else is looked up changes a bit.
#pragma once

#include <span>

#include "tutti/ops/row_gradients.h"
#include "tutti/ops/table_batched_embedding.h"

namespace tutti {

// What one virtual shard has looked up, and the gradient of the result. A shard without lookups has an undefined
// `grad`.
struct TableUse {
  Tensor grad;
  TableBatch batch;
};

// One of the tables that uses look up.
struct TableOfBatch {
  int64_t number;                // in the list of tables
  std::vector<int64_t> columns;  // of all tables
  int64_t rows;                  // of this one
};

// The gradient of a table, dense or in sparse form, in f32 (f64 for f64). Indices out of range are left out for
// BoundsCheck::warning and ignore. UsageError as table_batched_embedding_bags(), and for a `grad` that does not have
// exactly the sizes of the result.
Tensor table_batched_backward(std::span<const TableUse> uses, const TableOfBatch& table,
                              const TableBatchOptions& options = {});
RowGradients table_batched_row_gradients(std::span<const TableUse> uses, const TableOfBatch& table,
                                         const TableBatchOptions& options = {});

}  // namespace tutti
