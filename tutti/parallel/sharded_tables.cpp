#include "tutti/parallel/sharded_tables.h"

#include <algorithm>
#include <bit>
#include <exception>

#include "tutti/autograd/tape.h"
#include "tutti/core/tree_cut.h"
#include "tutti/ops/random_key.h"
#include "tutti/ops/tables/row_formulas.h"
#include "tutti/parallel/sharded_tables_parts.h"
#include "tutti/parallel/table_candidates.h"

namespace tutti::parallel {

static_assert(kTableColumnLeaf == facets::kSquaresLeaf, "slices of columns are nodes of a row's sum of squares");

PlannedTable planned_table(const nn::TableConfig& table, const nn::TableBatchedOptions& options, double pooling) {
  TUTTI_CHECK(options.optimizer.has_value(), "planned_table: the options of table '{}' have no optimizer", table.name);
  const TableState of_row = table_state(*options.optimizer, 1, 2);
  PlannedTable planned{table.name, table.rows, table.columns, pooling, itemsize(options.dtype), 0, 0};
  for (const Tensor& state : {of_row.first, of_row.second, of_row.seen}) {
    if (!state.defined()) continue;
    (state.ndim() == 2 ? planned.element_state_bytes : planned.row_state_bytes) += itemsize(state.dtype());
  }
  return planned;
}

ShardedTables::ShardedTables(std::vector<nn::TableConfig> tables, nn::TableBatchedOptions options,
                             const EmbeddingPlan& plan, int64_t shards, comm::ProcessGroup* group, Schedule schedule)
    : tables_(std::move(tables)),
      options_(std::move(options)),
      group_(group),
      count_(shards),
      schedule_(schedule),
      plan_(plan.tables),
      features_(tables_.size()),
      reached_(std::make_shared<Reached>()) {
  std::exception_ptr error;
  std::string mine;  // nothing of a rank that refuses
  try {
    prepare(plan);
    mine = facts();
  } catch (...) {
    error = std::current_exception();
  }
  std::vector<std::string> all;
  try {
    if (ranks() > 1) all = group_->all_gather_bytes(mine);
  } catch (...) {
    if (!error) throw;
  }
  if (error) std::rethrow_exception(error);
  for (size_t r = 0; r < all.size(); ++r) {
    TUTTI_CHECK(!all[r].empty(), "ShardedTables: rank {} has refused its arguments; its error says why", r);
    const auto [at, its] = std::mismatch(mine.begin(), mine.end(), all[r].begin(), all[r].end());
    if (at == mine.end() && its == all[r].end()) continue;
    const auto line_at = [](const std::string& text, size_t place) {
      const size_t begin = place == 0 ? 0 : text.rfind('\n', place - 1) + 1;
      return text.substr(begin, text.find('\n', std::max(begin, place)) - begin);
    };
    const size_t place = static_cast<size_t>(at - mine.begin());
    throw UsageError(fmt::format("ShardedTables: rank {} has '{}', and rank {} has '{}'; give all ranks the same",
                                 rank(), line_at(mine, place), r, line_at(all[r], place)));
  }
}

// What may fail on one rank.
void ShardedTables::prepare(const EmbeddingPlan& plan) {
  options_ = nn::checked_options("ShardedTables", tables_, std::move(options_));
  TUTTI_CHECK(options_.optimizer.has_value(),
              "ShardedTables: the options have no optimizer, and the tables are stepped in their own backward");
  constexpr int64_t most = nn::TableBatchedEmbeddingBags::kMostShards;
  TUTTI_CHECK(count_ >= 1 && count_ <= most && std::has_single_bit(static_cast<uint64_t>(count_)),
              "ShardedTables: {} virtual shards; expected a power of two up to {}", count_, most);
  local_ = shards_of(count_, rank(), ranks(), schedule_);
  check_plan(plan);
  part_at_.assign(tables_.size() * static_cast<size_t>(ranks()), -1);
  for (size_t t = 0; t < tables_.size(); ++t)
    for (size_t p = 0; p < plan_[t].parts.size(); ++p)
      part_at_[t * static_cast<size_t>(ranks()) + static_cast<size_t>(plan_[t].parts[p].rank)] =
          static_cast<int32_t>(p);
  for (size_t f = 0; f < options_.features.size(); ++f)
    features_[static_cast<size_t>(options_.features[f])].push_back(f);
  held_.reserve(tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    const bool is_copy = route_of(t) == Route::here && rank() > 0;
    const TablePart whole{rank(), 0, tables_[t].rows, 0, tables_[t].columns, 0};
    held_.emplace_back(tables_[t], options_.dtype, *options_.optimizer,
                       plan_[t].parts.empty() ? &whole : part_on(t, rank()), is_copy);
  }
  anchor_ = Tensor::of<float>({0});
  tutti::requires_grad_(anchor_);
}

// What the ranks must agree on, since they interpret each other's bytes by it: a line for each thing.
std::string ShardedTables::facts() const {
  const TableStep& o = *options_.optimizer;
  const TableBatchOptions& b = options_.batch;
  std::string text = fmt::format("{} virtual shards, schedule {}\n", count_, static_cast<int>(schedule_));
  text += fmt::format("tables in {}, pooling {}, results {}, bounds {}\n", name_of(options_.dtype),
                      static_cast<int>(b.pooling), static_cast<int>(b.output), static_cast<int>(b.bounds));
  text += fmt::format("features of tables {}\n", fmt::join(options_.features, ","));
  text += fmt::format("optimizer {}, lr {}, eps {}, betas {} and {}\n", static_cast<int>(o.optimizer), o.lr, o.eps,
                      o.beta1, o.beta2);
  text += fmt::format("weight decay {} in mode {}, at least {}; max_norm {}, stochastic rounding {}\n", o.weight_decay,
                      static_cast<int>(o.decay), o.least_decay, o.max_norm, o.stochastic_rounding);
  for (size_t t = 0; t < tables_.size(); ++t) {
    const nn::TableConfig& table = tables_[t];
    text +=
        fmt::format("table '{}' of {} rows and {} columns, first values {} of {}, {}:", table.name, table.rows,
                    table.columns, static_cast<int>(table.init.kind), table.init.scale, name_of(plan_[t].placement));
    for (const TablePart& p : plan_[t].parts)
      text += fmt::format(" rank {} rows {}-{} columns {}-{}", p.rank, p.row_begin, p.row_end, p.column_begin,
                          p.column_end);
    text += '\n';
  }
  return text;
}

ShardedTables::~ShardedTables() = default;

ShardedTables::Route ShardedTables::route_of(size_t table) const {
  if (ranks() == 1 || plan_[table].parts.empty()) return Route::here;  // without parts it has no elements
  switch (plan_[table].placement) {
    case TablePlacement::data_parallel:
      return Route::here;
    case TablePlacement::table_wise:
    case TablePlacement::column_wise:
      return Route::pooled;
    case TablePlacement::table_row_wise:
    case TablePlacement::row_wise:
      break;
  }
  return Route::rows;
}

// backward() needs whole rows for the gradients of per_sample_weights.
ShardedTables::Route ShardedTables::route_in(const Lookup& lookup, size_t table) const {
  const Route route = route_of(table);
  return lookup.wants_gradients && route == Route::pooled ? Route::rows : route;
}

const TablePart* ShardedTables::part_on(size_t table, int rank) const {
  const int32_t part = part_at_[table * static_cast<size_t>(ranks()) + static_cast<size_t>(rank)];
  return part < 0 ? nullptr : &plan_[table].parts[static_cast<size_t>(part)];
}

// That the parts of a table are what its placement says, whoever made the plan.
void ShardedTables::check_plan(const EmbeddingPlan& plan) const {
  TUTTI_CHECK(plan.tables.size() == tables_.size(), "ShardedTables: the plan has {} tables; there are {}",
              plan.tables.size(), tables_.size());
  for (size_t t = 0; t < tables_.size(); ++t) {
    const auto& [placement, parts, sent] = plan.tables[t];
    const nn::TableConfig& table = tables_[t];
    const bool copies = placement == TablePlacement::data_parallel;
    const bool by_columns = placement == TablePlacement::column_wise;
    const bool by_rows = placement == TablePlacement::row_wise || placement == TablePlacement::table_row_wise;
    const int slices = static_cast<int>(parts.size());
    int64_t row = 0, last = -1;
    bool fits = parts.empty() ? table.rows == 0 || table.columns == 0
                              : slices == (copies                  ? ranks()
                                           : by_columns || by_rows ? slices
                                                                   : 1);
    fits = fits && (!by_columns || parts.empty() ||
                    (std::has_single_bit(parts.size()) && slices <= largest_cut(table.columns, kTableColumnLeaf)));
    for (int s = 0; fits && s < slices; ++s) {
      const TablePart& p = parts[static_cast<size_t>(s)];
      const TreeCut columns =
          by_columns ? tree_cut(table.columns, kTableColumnLeaf, s, slices, table.name) : TreeCut{0, table.columns};
      fits = p.rank > last && p.rank < ranks() && p.column_begin == columns.begin && p.column_end == columns.end &&
             p.row_begin == (by_rows ? row : 0) && (by_rows ? p.row_end > p.row_begin : p.row_end == table.rows);
      row = p.row_end;
      last = p.rank;
    }
    TUTTI_CHECK(fits && (parts.empty() || row == table.rows),
                "ShardedTables: the plan's {} parts of table '{}' are not a {} of its {} rows and {} columns over {} "
                "ranks; use plan_embeddings() with the same tables and ranks",
                parts.size(), table.name, name_of(placement), table.rows, table.columns, ranks());
  }
}

void ShardedTables::initialize() {
  abandon_step();
  for (HeldTable& held : held_) held.initialize();
  values_ = static_cast<int64_t>(random_key("ShardedTables").key | 1);
  steps_ = 0;
}

void ShardedTables::set_lr(double lr) {
  TableStep options = *options_.optimizer;
  options.lr = lr;
  table_state(options, 0, 0);  // which refuses what does not fit
  options_.optimizer = options;
}

void ShardedTables::abandon_step() {
  sent_.reset();
  of_step_.reset();
  const std::lock_guard lock(reached_->mutex);
  ++reached_->lookup;
  reached_->gradients.clear();
}

ParcelExchange ShardedTables::exchange(const char* what, const std::function<Parcels()>& make) {
  return ParcelExchange(what, group_, [&] {
    Parcels parcels = make();
    for (size_t r = 0; r < parcels.list.size(); ++r)
      if (r != static_cast<size_t>(rank())) sent_bytes_ += parcels.list[r].numel();
    return parcels;
  });
}

}  // namespace tutti::parallel
