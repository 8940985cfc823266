#include "tutti/nn/table_batched_embedding.h"

#include <algorithm>
#include <utility>

#include "tutti/autograd/tape.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/random_key.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::nn {
namespace {

// The names of the states of a table, in the order of TableState: empty where there is none.
struct StateNames {
  const char *first = "", *second = "";
};
StateNames names_of(TableOptimizer optimizer) {
  switch (optimizer) {
    case TableOptimizer::sgd:
      return {};
    case TableOptimizer::adagrad:
    case TableOptimizer::rowwise_adagrad:
      return {"h", ""};
    case TableOptimizer::adam:
    case TableOptimizer::partial_rowwise_adam:
      break;
  }
  return {"m", "v"};
}

}  // namespace

TableBatchedEmbeddingBags::TableBatchedEmbeddingBags(std::vector<TableConfig> tables, TableBatchedOptions options)
    : tables_(std::move(tables)), options_(std::move(options)), states_(tables_.size()) {
  TUTTI_CHECK(!tables_.empty(), "TableBatchedEmbeddingBags: there are no tables; give at least one");
  TUTTI_CHECK(options_.dtype == DType::f32 || options_.dtype == DType::bf16 || options_.dtype == DType::f16,
              "TableBatchedEmbeddingBags: tables in {}; expected f32, bf16 or f16", name_of(options_.dtype));
  for (const TableConfig& t : tables_) {
    TUTTI_CHECK(!t.name.empty(), "TableBatchedEmbeddingBags: a table of {} rows has no name", t.rows);
    TUTTI_CHECK(t.rows >= 0 && t.columns >= 0,
                "TableBatchedEmbeddingBags: table {} has {} rows and {} columns; expected 0 or more of each", t.name,
                t.rows, t.columns);
    weights_.push_back(std::make_unique<Weight>(t, options_.dtype));
    register_module(t.name, *weights_.back());
    if (options_.optimizer) weights_.back()->weight.requires_grad_(false);
  }
  if (options_.features.empty())
    for (size_t t = 0; t < tables_.size(); ++t) options_.features.push_back(static_cast<int64_t>(t));
  for (const int64_t t : options_.features)
    TUTTI_CHECK(t >= 0 && t < static_cast<int64_t>(tables_.size()),
                "TableBatchedEmbeddingBags: a feature looks up table {}; there are {} tables", t, tables_.size());
  if (options_.optimizer) table_state(*options_.optimizer, 0, 0);  // which refuses options that do not fit
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
  TUTTI_CHECK(!virtual_shard || *virtual_shard >= 0, "TableBatchedEmbeddingBags: virtual shard {}; expected 0 or more",
              virtual_shard.value_or(0));
  TableBatch batch = given;
  batch.features = options_.features;
  std::vector<Tensor> tables;
  for (const auto& w : weights_) tables.push_back(w->weight.use());
  const TableBatchResult result = table_batched_embedding_bags(tables, batch, options_.batch);
  if (!options_.optimizer || !is_grad_enabled()) return result;
  // Without weights that want a gradient it has no history, as tables do not require grad.
  if (!requires_grad(result.values)) tutti::requires_grad_(result.values);
  const auto kept = std::make_shared<Use>(Use{virtual_shard, {.grad = {}, .batch = batch}});
  kept->use.batch.per_sample_weights = batch.per_sample_weights.defined() ? detach(batch.per_sample_weights) : Tensor{};
  register_hook(result.values, [kept](const Tensor& cotangent) {
    Tensor& grad = kept->use.grad;
    grad = grad.defined() ? add(grad, cotangent) : cotangent;
    return Tensor{};
  });
  const std::lock_guard lock(mutex_);
  uses_.push_back(kept);
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

// The uses at the places of their shards, undefined where no backward() came.
std::vector<TableUse> TableBatchedEmbeddingBags::uses_by_shard() const {
  std::vector<TableUse> places;
  int64_t next = 0;
  for (const auto& use : uses_) {
    const size_t shard = static_cast<size_t>(use->virtual_shard.value_or(next++));
    if (!use->use.grad.defined()) continue;
    places.resize(std::max(places.size(), shard + 1));
    TUTTI_CHECK(
        !places[shard].grad.defined(),
        "TableBatchedEmbeddingBags: virtual shard {} has two lookups in one step; make them features of one call",
        shard);
    places[shard] = use->use;
  }
  return places;
}

void TableBatchedEmbeddingBags::step() {
  TableStep options = optimizer("TableBatchedEmbeddingBags::step");
  const int ranks = RankContext::current().world_size();
  TUTTI_CHECK(ranks == 1,
              "TableBatchedEmbeddingBags::step: {} ranks train together, and a step sums the lookups of one rank, so "
              "their copies of the tables would differ from then on; build the module with .optimizer = std::nullopt, "
              "sum the dense gradients of the tables over the ranks and step them with an optimizer of tutti/optim",
              ranks);
  const NoGradScope no_grad;
  const std::lock_guard lock(mutex_);
  const std::vector<TableUse> uses = uses_by_shard();
  TUTTI_CHECK(!uses.empty(), "TableBatchedEmbeddingBags::step: backward() reached no lookup since the last step");
  options.step = steps_ + 1;
  TableOfBatch which{0, {}, 0};
  for (const TableConfig& t : tables_) which.columns.push_back(t.columns);
  for (size_t t = 0; t < tables_.size(); ++t) {
    if (std::find(options_.features.begin(), options_.features.end(), static_cast<int64_t>(t)) ==
        options_.features.end())
      continue;
    which.number = static_cast<int64_t>(t);
    which.rows = tables_[t].rows;
    options.seed = random_key(tables_[t].name + ".weight", 1).key;
    weight(t).will_change();
    table_batched_step_(weight(t).master(), state_of(t), uses, which, options, options_.batch);
  }
  ++steps_;
  uses_.clear();
}

void TableBatchedEmbeddingBags::abandon_step() {
  const std::lock_guard lock(mutex_);
  uses_.clear();
}

double TableBatchedEmbeddingBags::lr() const { return optimizer("TableBatchedEmbeddingBags::lr").lr; }

void TableBatchedEmbeddingBags::set_lr(double lr) {
  TableStep options = optimizer("TableBatchedEmbeddingBags::set_lr");
  options.lr = lr;
  table_state(options, 0, 0);
  options_.optimizer = options;
}

StateDict TableBatchedEmbeddingBags::optimizer_state() const {
  const StateNames names = names_of(optimizer("TableBatchedEmbeddingBags::optimizer_state").optimizer);
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
}

}  // namespace tutti::nn
