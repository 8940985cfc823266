// DLRM: a model of clicks over dense features and categories.
//
//   x_0 = bottom(dense);  x_t = the pooled rows of table t, t = 1 to T
//   logit = top([x_0, x_i . x_j for all i > j])
//
// where bottom and top are layers with ReLU behind all but top's last. Pairs are in the order (1, 0), (2, 0), (2, 1),
// ... Source: Naumov et al. 2019, "Deep learning recommendation model for personalization and recommendation systems".
// Dims: B examples, N dense features, T tables, D columns of a table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/nn/table_batched_embedding.h"

namespace tutti::models {

struct DlrmConfig {
  int64_t dense_features = 13;
  std::vector<int64_t> table_rows;      // of each table
  int64_t dim = 16;                     // columns of a table, and features of bottom's last layer
  std::vector<int64_t> bottom = {64};   // features of bottom's other layers
  std::vector<int64_t> top = {64, 32};  // features of top's layers but the last, which has one
  // What Dlrm::tables().step() runs; unset: the tables have dense gradients, as other parameters.
  std::optional<TableStep> table_optimizer = TableStep{};
  bool tables_apart = false;  // the model has no tables: see Dlrm::forward_looked_up()
};

// UsageError, naming the key, for sizes that are not positive, and for more than 2^63 - 1 parameters.
void validate(const DlrmConfig& config);
int64_t parameter_count(const DlrmConfig& config);

// The tables of such a model, "tables.I", for parallel::ShardedTables.
std::vector<nn::TableConfig> tables_of(const DlrmConfig& config);
// One row of each table for every example, as a batch of theirs. categories [B, T] i64 or i32.
TableBatch table_batch_of(const Tensor& categories_BT);

// Parameters bottom.I and top.I.{weight, bias}, tables.I.weight; I counts from 0. Weights are initialized as in the
// paper's program, those of layers with deviation sqrt(2 / (in + out)) and tables within +-1 / sqrt(rows); biases as 0.
class Dlrm final : public nn::Module {
 public:
  explicit Dlrm(const DlrmConfig& config);
  ~Dlrm() override;

  // Logits [B] in f32. Shapes: dense [B, N] f32; one row of each table, categories [B, T] i64 or i32; or B bags for
  // each table, pooled by sums. With table_optimizer these are lookups of a step in training mode, of this virtual
  // shard: see nn::TableBatchedEmbeddingBags::forward(). UsageError for rows that are not there and for other sizes.
  Tensor forward(const Tensor& dense_BN, const Tensor& categories_BT, std::optional<int64_t> virtual_shard = {}) const;
  Tensor forward(const Tensor& dense_BN, const TableBatch& bags, std::optional<int64_t> virtual_shard = {}) const;
  // The same with what another module has looked up in tables_of(), [B, T D]. For DlrmConfig::tables_apart. UsageError
  // for models that have tables.
  Tensor forward_looked_up(const Tensor& dense_BN, const Tensor& looked_up) const;

  // With table_optimizer: all parameters but those of the tables; else all.
  std::vector<nn::NamedParameter> other_parameters() const;
  // UsageError for models without tables.
  nn::TableBatchedEmbeddingBags& tables();
  const DlrmConfig& config() const { return config_; }

 private:
  void check_tables(bool apart) const;
  Tensor by_table(const Tensor& looked_up) const;
  Tensor logits(const Tensor& dense_BN, const Tensor& embedded_BTD) const;

  struct Layers;
  const DlrmConfig config_;
  std::unique_ptr<nn::Child<Layers>> bottom_;
  std::unique_ptr<nn::Child<nn::TableBatchedEmbeddingBags>> tables_;  // null without tables
  std::unique_ptr<nn::Child<Layers>> top_;
};

}  // namespace tutti::models
