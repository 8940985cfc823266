// HeldTable: what a rank holds of an embedding table that a plan divides, and its optimizer state.
#pragma once

#include <string>
#include <vector>

#include "tutti/nn/table_batched_embedding.h"
#include "tutti/parallel/embedding_plan.h"
#include "tutti/parallel/tensor_box.h"

namespace tutti::parallel {

class HeldTable {
 public:
  // Nothing is held without a part. `is_copy`: a rank of a lower number holds the same.
  HeldTable(const nn::TableConfig& table, DType dtype, const TableStep& optimizer, const TablePart* part, bool is_copy);

  bool has_any() const { return weight.defined(); }
  // As Parameter::initialize() would fill this part of the whole table.
  void initialize();
  // The weight, and the states of the optimizer, whole or in part; the same list on all ranks.
  std::vector<TensorBox> boxes() const;
  // A step on rows of the part, whose numbers count from its first row. `which` of the tables of the uses it is.
  void step(std::span<const TableUse> uses, const TableOfBatch& which, const TableStep& options,
            const TableBatchOptions& batch, const Tensor& squares = {}, const Tensor& new_squares = {}) const;

  int64_t rows() const { return weight.extent(0); }
  int64_t columns() const { return weight.extent(1); }
  // What `which` is where uses look up this part alone.
  TableOfBatch of_batch() const { return {0, {columns()}, rows()}; }

  const nn::TableConfig& config;
  const TablePart part;  // of no rows without any
  Tensor weight;         // [rows, columns] of the part
  TableState state;

 private:
  void fill(int64_t first, int64_t count);

  const TableStep optimizer_;
  const DType dtype_;
  const bool is_copy_;
};

}  // namespace tutti::parallel
