// IntNBitTableBatchedEmbeddingBags: many embedding tables in 8 and 4 bits as one module, for inference.
//
//   const auto small = nn::quantize_tables(trained, {RowQuantization::fused_4bit_rowwise_sbhalf_front});
//   const Tensor x_BD = small->forward({.indices = indices, .offsets = offsets});
#pragma once

#include <memory>
#include <vector>

#include "tutti/nn/table_batched_embedding.h"
#include "tutti/ops/quantized_table_batched_embedding.h"

namespace tutti::nn {

// forward() may be called from several threads at once. No gradients, and not for tables that are divided over ranks.
class IntNBitTableBatchedEmbeddingBags : public Module {
 public:
  // Tables of rows that are zero in every byte; load_state_dict() fills them. `formats`: of each table, or one for all.
  // `options`: as those of the float tables, without an optimizer. UsageError for numbers of formats that do not fit.
  IntNBitTableBatchedEmbeddingBags(std::vector<TableConfig> tables, std::vector<RowQuantization> formats,
                                   TableBatchedOptions options = {});

  // As quantized_table_batched_embedding_bags(), whose TableBatch::features are the module's; leave them empty.
  Tensor forward(const TableBatch& batch) const { return forward_with_report(batch).values; }
  TableBatchResult forward_with_report(const TableBatch& batch) const;

  const std::vector<TableConfig>& tables() const { return tables_; }
  RowQuantization format(size_t table) const { return formats_.at(table); }
  // The buffer NAME.rows, u8 [rows, quantized_row_nbytes()].
  const Buffer& rows(size_t table) const { return rows_.at(table)->rows; }

 private:
  struct Rows : Module {
    explicit Rows(Tensor value) : rows(register_buffer("rows", std::move(value))) {}
    Buffer rows;
  };
  const std::vector<TableConfig> tables_;
  std::vector<RowQuantization> formats_;
  TableBatchedOptions options_;
  std::vector<std::unique_ptr<Rows>> rows_;
};

// The tables of `trained` in those formats, with its features, pooling, bounds and dtype of results (f32 where that is
// the tables' own). UsageError as quantize_rows().
std::unique_ptr<IntNBitTableBatchedEmbeddingBags> quantize_tables(
    const TableBatchedEmbeddingBags& trained,
    std::vector<RowQuantization> formats = {RowQuantization::fused_8bit_rowwise_sbhalf_front});

}  // namespace tutti::nn
