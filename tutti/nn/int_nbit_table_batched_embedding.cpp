#include "tutti/nn/int_nbit_table_batched_embedding.h"

#include <utility>

#include "tutti/ops/creation.h"

namespace tutti::nn {

IntNBitTableBatchedEmbeddingBags::IntNBitTableBatchedEmbeddingBags(std::vector<TableConfig> tables,
                                                                   std::vector<RowQuantization> formats,
                                                                   TableBatchedOptions options)
    : tables_(std::move(tables)), formats_(std::move(formats)), options_(std::move(options)) {
  TUTTI_CHECK(!tables_.empty(), "IntNBitTableBatchedEmbeddingBags: there are no tables; give at least one");
  TUTTI_CHECK(formats_.size() == 1 || formats_.size() == tables_.size(),
              "IntNBitTableBatchedEmbeddingBags: {} formats for {} tables; give one for all, or one for each",
              formats_.size(), tables_.size());
  formats_.resize(tables_.size(), formats_[0]);
  for (size_t t = 0; t < tables_.size(); ++t) {
    const TableConfig& table = tables_[t];
    TUTTI_CHECK(!table.name.empty() && table.rows >= 0 && table.columns >= 0,
                "IntNBitTableBatchedEmbeddingBags: table {} is called '{}' and has {} rows and {} columns; expected a "
                "name, and 0 or more of each",
                t, table.name, table.rows, table.columns);
    rows_.push_back(
        std::make_unique<Rows>(zeros({table.rows, quantized_row_nbytes(formats_[t], table.columns)}, DType::u8)));
    register_module(table.name, *rows_.back());
  }
  if (options_.features.empty())
    for (size_t t = 0; t < tables_.size(); ++t) options_.features.push_back(static_cast<int64_t>(t));
}

TableBatchResult IntNBitTableBatchedEmbeddingBags::forward_with_report(const TableBatch& given) const {
  TUTTI_CHECK(given.features.empty(),
              "IntNBitTableBatchedEmbeddingBags: the batch names the tables of {} features; they are options of the "
              "module",
              given.features.size());
  TableBatch batch = given;
  batch.features = options_.features;
  std::vector<QuantizedTable> tables;
  for (size_t t = 0; t < tables_.size(); ++t) tables.push_back({rows_[t]->rows.use(), formats_[t], tables_[t].columns});
  return quantized_table_batched_embedding_bags(tables, batch, options_.batch);
}

std::unique_ptr<IntNBitTableBatchedEmbeddingBags> quantize_tables(const TableBatchedEmbeddingBags& trained,
                                                                  std::vector<RowQuantization> formats) {
  TableBatchedOptions options = trained.options();
  options.optimizer.reset();
  auto module = std::make_unique<IntNBitTableBatchedEmbeddingBags>(trained.tables(), std::move(formats), options);
  for (size_t t = 0; t < trained.tables().size(); ++t)
    module->rows(t).set(quantize_rows(trained.weight(t).master(), module->format(t)));
  return module;
}

}  // namespace tutti::nn
