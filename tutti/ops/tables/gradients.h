// Gradients of table-batched embedding bags from the operands of its calls.
#pragma once

#include <span>
#include <vector>

#include "tutti/ops/table_batched_step.h"

namespace tutti::facets {

// `inputs`: the gradient of the result, then the operands of the batch (lookups.h), with or without weights.
// The gradient of table number `table`, which has `sizes`.
Tensor table_gradient(std::span<const Tensor> inputs, int64_t table, const Shape& sizes, TablePooling pooling,
                      BoundsCheck bounds);
// The gradient of the weights, which are among the inputs.
Tensor table_weights_gradient(std::span<const Tensor> tables, std::span<const Tensor> inputs, TablePooling pooling,
                              BoundsCheck bounds);

// The inputs of all shards, for ops that go back to one table, and whether they have weights. UsageError, naming `op`,
// for uses of different kinds.
struct ShardInputs {
  std::vector<Tensor> list;
  bool weighted;
};
ShardInputs inputs_of_uses(const char* op, std::span<const TableUse> uses, const TableOfBatch& table,
                           TablePooling pooling);

// UsageError, naming `op`, for uses that a step on any of `tables`, which are all tables in their order, would refuse.
void check_uses(const char* op, std::span<const TableUse> uses, std::span<const TableOfBatch> tables,
                const TableBatchOptions& options);

// The sum of the squares whose mean the optimizer takes, over the columns of `table`, of each row of `gradients`, which
// has its rows only: f32 [rows]. Sums of parts that are nodes of the halving of a row into leaves of 16 elements are
// those of the whole row when they are added by halving. Shapes: table [V, D], gradients' values
// [rows, D] f32. UsageError for others.
Tensor table_row_squares(const Tensor& table, const RowGradients& gradients, const TableStep& options);
// The same of the values that a step of row-wise Adagrad gives the rows before max_norm scales them. `squares`: the
// sums of table_row_squares() over whole rows, of `all_columns` columns. Nothing is written.
Tensor table_new_row_squares(const Tensor& table, const TableState& state, const RowGradients& gradients,
                             const TableStep& options, const Tensor& squares, int64_t all_columns);

}  // namespace tutti::facets
