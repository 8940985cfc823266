#include "tutti/nn/table_batched_embedding.h"

#include <algorithm>
#include <set>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/ops/copy.h"

namespace tutti::nn {

TableBatchedOptions checked_options(const char* who, const std::vector<TableConfig>& tables,
                                    TableBatchedOptions options) {
  TUTTI_CHECK(!tables.empty(), "{}: there are no tables; give at least one", who);
  TUTTI_CHECK(options.dtype == DType::f32 || options.dtype == DType::bf16 || options.dtype == DType::f16,
              "{}: tables in {}; expected f32, bf16 or f16", who, name_of(options.dtype));
  std::set<std::string> names;
  for (const TableConfig& t : tables) {
    TUTTI_CHECK(!t.name.empty(), "{}: a table of {} rows has no name", who, t.rows);
    TUTTI_CHECK(names.insert(t.name).second, "{}: two tables are called '{}'", who, t.name);
    TUTTI_CHECK(t.rows >= 0 && t.columns >= 0, "{}: table {} has {} rows and {} columns; expected 0 or more of each",
                who, t.name, t.rows, t.columns);
  }
  if (options.features.empty())
    for (size_t t = 0; t < tables.size(); ++t) options.features.push_back(static_cast<int64_t>(t));
  for (const int64_t t : options.features)
    TUTTI_CHECK(t >= 0 && t < static_cast<int64_t>(tables.size()),
                "{}: a feature looks up table {}; there are {} tables", who, t, tables.size());
  if (options.optimizer) table_state(*options.optimizer, 0, 0);  // which refuses options that do not fit
  return options;
}

TableBatchedEmbeddingBags::TableBatchedEmbeddingBags(std::vector<TableConfig> tables, TableBatchedOptions options)
    : tables_(std::move(tables)),
      options_(checked_options("TableBatchedEmbeddingBags", tables_, std::move(options))),
      states_(tables_.size()) {
  for (const TableConfig& t : tables_) {
    weights_.push_back(std::make_unique<Weight>(t, options_.dtype));
    register_module(t.name, *weights_.back());
    if (options_.optimizer) weights_.back()->weight.requires_grad_(false);
  }
  if (!options_.optimizer) return;
  anchor_ = Tensor::of<float>({0});
  tutti::requires_grad_(anchor_);
}

int64_t TableBatchedEmbeddingBags::output_columns() const {
  int64_t total = 0;
  for (const int64_t t : options_.features) {
    const int64_t columns = tables_[static_cast<size_t>(t)].columns;
    total = options_.batch.pooling == TablePooling::none ? columns : total + columns;
  }
  return total;
}

Tensor TableBatchedEmbeddingBags::forward(const TableBatch& batch, std::optional<int64_t> virtual_shard) const {
  return forward_with_report(batch, virtual_shard).values;
}

TableBatchResult TableBatchedEmbeddingBags::forward_with_report(const TableBatch& given,
                                                                std::optional<int64_t> virtual_shard) const {
  TUTTI_CHECK(given.features.empty(),
              "TableBatchedEmbeddingBags: the batch names the tables of {} features; they are options of the module",
              given.features.size());
  TUTTI_CHECK(!virtual_shard || (*virtual_shard >= 0 && *virtual_shard < kMostShards),
              "TableBatchedEmbeddingBags: virtual shard {}; expected at least 0 and less than {}",
              virtual_shard.value_or(0), kMostShards);
  TableBatch batch = given;
  batch.features = options_.features;
  std::vector<Tensor> tables;
  for (const auto& w : weights_) tables.push_back(w->weight.use());
  TableBatchResult result = table_batched_embedding_bags(tables, batch, options_.batch);
  if (!options_.optimizer || !is_training()) return result;
  // A checkpoint, which records nothing at first, learns here that it has a backward.
  if (!is_grad_enabled()) autograd::note_captured(anchor_);
  else result.values = recorded(result.values, batch, virtual_shard);
  return result;
}

const TableStep& TableBatchedEmbeddingBags::optimizer(const char* where) const {
  TUTTI_CHECK(options_.optimizer.has_value(),
              "{}: the module has no optimizer; its tables have dense gradients, which others step", where);
  return *options_.optimizer;
}

TableState& TableBatchedEmbeddingBags::state_of(size_t table) const {
  TableState& state = states_[table];
  const TableStep& options = optimizer("TableBatchedEmbeddingBags");
  const bool has = options.optimizer == TableOptimizer::sgd || state.first.defined();
  if (!has) state = table_state(options, tables_[table].rows, tables_[table].columns);
  return state;
}

double TableBatchedEmbeddingBags::lr() const { return optimizer("TableBatchedEmbeddingBags::lr").lr; }

void TableBatchedEmbeddingBags::set_lr(double lr) {
  TableStep options = optimizer("TableBatchedEmbeddingBags::set_lr");
  options.lr = lr;
  table_state(options, 0, 0);
  options_.optimizer = options;
}

StateDict TableBatchedEmbeddingBags::optimizer_state() const {
  const TableStateNames names = names_of(optimizer("TableBatchedEmbeddingBags::optimizer_state").optimizer);
  StateDict state;
  for (size_t t = 0; t < tables_.size(); ++t) {
    const TableState& s = state_of(t);
    const std::string prefix = "state." + tables_[t].name + ".weight.";
    if (s.first.defined()) state.emplace_back(prefix + names.first, s.first);
    if (s.second.defined()) state.emplace_back(prefix + names.second, s.second);
    if (s.seen.defined()) state.emplace_back(prefix + "seen", s.seen);
  }
  state.emplace_back("state.iter", Tensor::of<int64_t>({steps_}, {}));
  return state;
}

void TableBatchedEmbeddingBags::load_optimizer_state(const StateDict& state) {
  const NoGradScope no_grad;
  const StateDict mine = optimizer_state();
  std::vector<Tensor> found;
  for (const auto& [name, tensor] : mine) {
    const auto it = std::find_if(state.begin(), state.end(), [&](const auto& entry) { return entry.first == name; });
    TUTTI_CHECK(it != state.end(), "TableBatchedEmbeddingBags: the state has no {}; it has {} entries", name,
                state.size());
    TUTTI_CHECK(it->second.sizes() == tensor.sizes() && it->second.dtype() == tensor.dtype(),
                "TableBatchedEmbeddingBags: {} is {}; expected {}", name, describe(it->second), describe(tensor));
    found.push_back(it->second);
  }
  TUTTI_CHECK(state.size() == mine.size(), "TableBatchedEmbeddingBags: the state has {} entries; expected {}",
              state.size(), mine.size());
  const int64_t steps = found.back().item_int();
  TUTTI_CHECK(steps >= 0, "TableBatchedEmbeddingBags: state.iter is {}; expected 0 or more", steps);
  for (size_t i = 0; i + 1 < mine.size(); ++i) copy_(mine[i].second, found[i]);
  steps_ = steps;
  abandon_step();
}

}  // namespace tutti::nn
