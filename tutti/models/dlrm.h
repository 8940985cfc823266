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
#include <span>
#include <string>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/nn/table_batched_embedding.h"
#include "tutti/ops/row_gradients.h"
#include "tutti/ops/row_step.h"

namespace tutti::models {

struct DlrmConfig {
  int64_t dense_features = 13;
  std::vector<int64_t> table_rows;      // of each table
  int64_t dim = 16;                     // columns of a table, and features of bottom's last layer
  std::vector<int64_t> bottom = {64};   // features of bottom's other layers
  std::vector<int64_t> top = {64, 32};  // features of top's layers but the last, which has one
  bool sparse_tables = true;            // see FeatureTables
  bool tables_apart = false;            // the model has no tables: see Dlrm::forward_looked_up()
};

// UsageError, naming the key, for sizes that are not positive, and for more than 2^63 - 1 parameters.
void validate(const DlrmConfig& config);
int64_t parameter_count(const DlrmConfig& config);

// The tables of such a model, "tables.I", for parallel::ShardedTables.
std::vector<nn::TableConfig> tables_of(const DlrmConfig& config);
// One row of each table for every example, as a batch of theirs. categories [B, T] i64 or i32.
TableBatch table_batch_of(const Tensor& categories_BT);

// The bags of a table in a batch: indices [P] and where each bag begins, offsets [B]; both i64 or i32.
struct FeatureBags {
  Tensor indices, offsets;
};

// The tables of a click model, one for each feature, pooled by sums. Sparse tables have no dense gradients: after
// backward() take_row_gradients() has the rows that the batches used, and step() changes these rows by row-wise
// Adagrad. The optimizer of the other parameters must not have them: other_parameters().
//
// The sums of squares of rows are buffers "I.adagrad", so that a checkpoint has them.
class FeatureTables final : public nn::Module {
 public:
  FeatureTables(const std::vector<int64_t>& table_rows, int64_t dim, bool sparse);
  ~FeatureTables() override;

  // [B, T, D]: of bags of one row each, categories [B, T] i64 or i32; and of any bags, one FeatureBags for each table.
  // UsageError for another number of tables, and for a category that is no row, naming its bag.
  Tensor forward(const Tensor& categories_BT) const;
  Tensor forward(std::span<const FeatureBags> features) const;

  // One for each table, of all lookups since the last call; errors of nn::Table::take_row_gradients().
  std::vector<RowGradients> take_row_gradients();
  // Forgets lookups of a step that has thrown; see nn::Table::abandon_row_gradients().
  void abandon_row_gradients();
  // UsageError naming the table when a gradient is none of its rows; then no table has changed.
  void step(std::span<const RowGradients> gradients, const AdagradStep& options);
  const std::vector<int64_t>& table_rows() const { return table_rows_; }

 private:
  struct FeatureTable;
  const std::vector<int64_t> table_rows_;
  std::vector<std::unique_ptr<nn::Child<FeatureTable>>> tables_;
};

// Parameters bottom.I and top.I.{weight, bias}, tables.I.weight; I counts from 0. Weights are initialized as in the
// paper's program, those of layers with deviation sqrt(2 / (in + out)) and tables within +-1 / sqrt(rows); biases as 0.
class Dlrm final : public nn::Module {
 public:
  explicit Dlrm(const DlrmConfig& config);
  ~Dlrm() override;

  // Logits [B] in f32. Shapes: dense [B, N] f32, categories and features as FeatureTables takes them.
  Tensor forward(const Tensor& dense_BN, const Tensor& categories_BT) const;
  Tensor forward(const Tensor& dense_BN, std::span<const FeatureBags> features) const;
  // The same with what another module has looked up in tables_of(), [B, T D]. For DlrmConfig::tables_apart. UsageError
  // for models that have tables.
  Tensor forward_looked_up(const Tensor& dense_BN, const Tensor& looked_up) const;

  // With sparse tables: all parameters but theirs; else all.
  std::vector<nn::NamedParameter> other_parameters() const;
  FeatureTables& tables();
  const DlrmConfig& config() const { return config_; }

 private:
  void check_tables(bool apart) const;
  Tensor logits(const Tensor& dense_BN, const Tensor& embedded_BTD) const;

  struct Layers;
  const DlrmConfig config_;
  std::unique_ptr<nn::Child<Layers>> bottom_;
  std::unique_ptr<nn::Child<FeatureTables>> tables_;
  std::unique_ptr<nn::Child<Layers>> top_;
};

}  // namespace tutti::models
