// TableBatchedEmbeddingBags: many embedding tables as one module, stepped in their own backward.
//
//   nn::TableBatchedEmbeddingBags tables({{"user", 1'000'000, 64}, {"item", 50'000, 32}}, {.optimizer = TableStep{.lr =
//   0.05}}); nn::initialize(tables);
//   ... const Tensor x_BD = tables.forward({.indices = indices, .offsets = offsets});
//   ... backward(loss) ...
//   tables.step();  // each row that was looked up, once
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tutti/nn/module.h"
#include "tutti/ops/table_batched_step.h"

namespace tutti::nn {

struct TableConfig {
  std::string name;  // its parameter is NAME.weight, as that of an EmbeddingBag of this name would be
  int64_t rows, columns;
  Init init = Init::normal(1.0);
};

struct TableBatchedOptions {
  TableBatchOptions batch = {};        // pooling, bounds and dtype of the results
  std::vector<int64_t> features = {};  // the table of each feature; empty: one feature for each table
  DType dtype = DType::f32;            // of the tables: f32, bf16 or f16
  // The optimizer that step() runs; `step` and `seed` are the module's own. Unset: tables have dense gradients, as
  // other parameters.
  std::optional<TableStep> optimizer = TableStep{};
};

// The options with the table of each feature. UsageError, naming the module `who`, for tables without a name or with
// one twice, and options that do not fit.
TableBatchedOptions checked_options(const char* who, const std::vector<TableConfig>& tables,
                                    TableBatchedOptions options);

// With an optimizer the tables do not require grad, so other optimizers and the clipping of a global norm leave them
// out. backward() keeps the gradient of the looked-up values until step(), with the batch itself and no copy of it.
// forward() may be called from several threads at once, where each call names its virtual shard; so may the backward()
// of different calls; all else excludes other calls. Not for tables that are divided over ranks, and with an optimizer
// compiled functions may only look up.
class TableBatchedEmbeddingBags : public Module {
 public:
  // UsageError for tables without a name or with one twice, and options that do not fit.
  explicit TableBatchedEmbeddingBags(std::vector<TableConfig> tables, TableBatchedOptions options = {});

  // As table_batched_embedding_bags(), whose TableBatch::features are the module's; leave them empty. With an
  // optimizer, each virtual shard of a step calls this once in training mode while gradients are recorded: shard number
  // s, below kMostShards, is at place s of the tree that sums gradients (numerics contract, N5); by default calls are
  // numbered in their order since the last step(). Calls inside a checkpoint() are numbered when they run again, so
  // several of them name their shards. Calls in evaluation mode take no part in a step. UsageError for tables that
  // require grad beside an optimizer of the module, and in a compiled function where the call would take part in a
  // step.
  Tensor forward(const TableBatch& batch, std::optional<int64_t> virtual_shard = {}) const;
  TableBatchResult forward_with_report(const TableBatch& batch, std::optional<int64_t> virtual_shard = {}) const;

  // One step on all rows that were looked up since the last one and that a backward() has reached. Tables that were not
  // reached keep their values; the step is counted for all. A backward() of an earlier lookup that comes later counts
  // for no step. UsageError without an optimizer, before any backward(), where several ranks train together (lookups of
  // other ranks are not summed), and when ops have written a batch or a table since the forward. Nothing has changed
  // then. A failure behind the first write, such as memory that runs out, abandons the step, because its first tables
  // would be stepped twice by another call.
  void step();
  // Forgets what was looked up since the last step.
  void abandon_step();

  double lr() const;
  void set_lr(double lr);
  int64_t steps_taken() const { return steps_; }
  // The state of the optimizer, which a checkpoint needs besides the state dict: "state.NAME.weight.h" for both
  // Adagrads, "...m" and "...v" for both Adams, "...seen" for TableDecay::global, and "state.iter" i64 [], the steps
  // taken. All but iter share memory with the module.
  StateDict optimizer_state() const;
  // Copies the values of `state`, and forgets what was looked up since the last step. UsageError, before anything is
  // copied, for names or sizes that do not fit.
  void load_optimizer_state(const StateDict& state);

  const std::vector<TableConfig>& tables() const { return tables_; }
  const TableBatchedOptions& options() const { return options_; }
  const Parameter& weight(size_t table) const { return weights_.at(table)->weight; }
  // The width of a row of the result: the sum over features, or that of each without pooling.
  int64_t output_columns() const;

  static constexpr int64_t kMostShards = 1 << 16;

 private:
  // The lookups of one forward.
  struct Use {
    int64_t shard;
    TableUse use;                    // its gradient is set by backward()
    std::vector<uint32_t> versions;  // of the tensors of the batch and of the tables
    int64_t step;                    // how many steps were taken or abandoned before
  };
  // What the backward nodes share with the module.
  struct Uses {
    std::mutex mutex;
    std::vector<std::shared_ptr<Use>> reached;  // by a backward()
    int64_t next_shard = 0;
    int64_t step = 0;
    void drop();
  };
  // The module NAME of a table, with its parameter.
  struct Weight : Module {
    Weight(const TableConfig& table, DType dtype)
        : weight(register_parameter("weight", {table.rows, table.columns}, table.init, dtype)) {}
    Parameter weight;
  };
  const TableStep& optimizer(const char* where) const;
  TableState& state_of(size_t table) const;
  Tensor recorded(const Tensor& values, const TableBatch& batch, std::optional<int64_t> virtual_shard) const;
  void check_unchanged(const Use& use) const;
  std::vector<TableUse> uses_by_shard() const;
  std::vector<uint32_t> versions_of(const TableBatch& batch) const;

  const std::vector<TableConfig> tables_;
  TableBatchedOptions options_;
  std::vector<std::unique_ptr<Weight>> weights_;
  int64_t steps_ = 0;
  mutable std::vector<TableState> states_;  // made when first needed
  const std::shared_ptr<Uses> uses_ = std::make_shared<Uses>();
  Tensor anchor_;  // a leaf, so that backward() comes here although no table requires grad
};

}  // namespace tutti::nn
