// Table-batched embedding bags: lookups in many tables by one call.
#pragma once

#include <span>

#include "tutti/ops/table_batch.h"

namespace tutti {

// The dtype of a result; as_tables: the common one of the tables.
enum class TableOutput : uint8_t { as_tables, f32, bf16, f16 };

struct TableBatchOptions {
  TablePooling pooling = TablePooling::sum;
  BoundsCheck bounds = BoundsCheck::fatal;
  TableOutput output = TableOutput::as_tables;
};

struct TableBatchResult {
  Tensor values;
  Tensor report;  // i64 [6]: what IndexReport::of() reads
};

// Looks up and pools the bags of every feature. A sum adds the rows of a bag one after another in its order, in f32
// (f64 for f64), each multiplied by its weight first if there are weights, and is rounded once; a mean divides the sum
// by the number of entries, also with weights. An empty bag gives -0.0, the sum of nothing. Has the bits of
// embedding_bag() of every feature. Shapes: tables [rows, D], each with its own; values [B, sum of the D of the
// features], feature after feature along the columns. With TableBatch::bags, values is one-dimensional: [bags of
// feature 0, D of feature 0] in row-major order, then feature 1, and so on. Without pooling: [P, D], where all features
// have one D. Dtypes: tables f32, bf16, f16 or f64, which may differ from table to table. UsageError for offsets that
// are not as many as TableBatch says, do not start at 0, fall, or do not end at the number of indices, in every mode of
// `bounds`; and for indices as `bounds` says. Gradients: of the tables (table_batched_backward.h) and of
// per_sample_weights. Source: definition; the order of operands is that of FBGEMM's table-batched embeddings.
TableBatchResult table_batched_embedding_bags(std::span<const Tensor> tables, const TableBatch& batch,
                                              const TableBatchOptions& options = {});

}  // namespace tutti
