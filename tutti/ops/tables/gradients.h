// Gradients of table-batched embedding bags from the operands of its calls.
#pragma once

#include <span>
#include <vector>

#include "tutti/ops/table_batched_backward.h"

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

}  // namespace tutti::facets
