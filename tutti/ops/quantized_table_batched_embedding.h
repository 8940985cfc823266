// Lookups in many tables in 8 and 4 bits by one call, for inference.
#pragma once

#include <span>

#include "tutti/ops/row_quantization.h"
#include "tutti/ops/table_batched_embedding.h"

namespace tutti {

struct QuantizedTable {
  Tensor rows;  // u8 [rows, quantized_row_nbytes(format, columns)]
  RowQuantization format;
  int64_t columns;
};

// Has the bits of table_batched_embedding_bags() over dequantize_rows() of the tables, whose formats may differ: each
// number is decoded in one rounding, multiplied by its weight if there are weights, and added. The index -1, of a row
// that was pruned, adds nothing and is not out of range in any mode; a mean counts it. TableOutput::as_tables is f32.
// No gradient. UsageError as there, and for rows that do not have the sizes of their formats.
TableBatchResult quantized_table_batched_embedding_bags(std::span<const QuantizedTable> tables, const TableBatch& batch,
                                                        const TableBatchOptions& options = {});

}  // namespace tutti
