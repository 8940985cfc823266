#include "tutti/parallel/sharded_tables.h"

#include <algorithm>
#include <bit>

#include "tutti/autograd/tape.h"
#include "tutti/core/hash.h"
#include "tutti/core/tree_cut.h"
#include "tutti/parallel/sharded_lookup.h"
#include "tutti/parallel/table_candidates.h"

namespace tutti::parallel {

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
      options_(nn::checked_options("ShardedTables", tables_, std::move(options))),
      group_(group),
      count_(shards),
      schedule_(schedule),
      local_(shards_of(shards, rank(), ranks(), schedule)),
      plan_(plan.tables),
      features_(tables_.size()),
      reached_(std::make_shared<Reached>()) {
  TUTTI_CHECK(options_.optimizer.has_value(),
              "ShardedTables: the options have no optimizer, and the tables are stepped in their own backward");
  TUTTI_CHECK(std::has_single_bit(static_cast<uint64_t>(shards)),
              "ShardedTables: {} virtual shards; expected a power "
              "of two",
              shards);
  check_plan(plan);
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
  // What the ranks must agree on, since they interpret each other's bytes by it.
  std::string facts = fmt::format("{} {} {} {} {}", shards, static_cast<int>(schedule), name_of(options_.dtype),
                                  static_cast<int>(options_.batch.pooling), fmt::join(options_.features, ","));
  const TableStep& o = *options_.optimizer;
  facts += fmt::format(" {} {} {} {} {} {} {} {} {} {}", static_cast<int>(o.optimizer), o.lr, o.eps, o.beta1, o.beta2,
                       o.weight_decay, static_cast<int>(o.decay), o.least_decay, o.max_norm, o.stochastic_rounding);
  for (size_t t = 0; t < tables_.size(); ++t) {
    facts +=
        fmt::format("\n{} {} {} {}", tables_[t].name, tables_[t].rows, tables_[t].columns, name_of(plan_[t].placement));
    for (const TablePart& p : plan_[t].parts)
      facts += fmt::format(" {}:{}-{}x{}-{}", p.rank, p.row_begin, p.row_end, p.column_begin, p.column_end);
  }
  agreement_ = hash64(facts) | 1;
  if (ranks() == 1) return;
  const std::vector<std::string> all = group_->all_gather_bytes(facts);
  for (size_t r = 0; r < all.size(); ++r)
    TUTTI_CHECK(all[r] == all[0], "ShardedTables: ranks 0 and {} have other arguments:\n{}\nand\n{}", r, all[0],
                all[r]);
}

ShardedTables::~ShardedTables() = default;

ShardedTables::Route ShardedTables::route_of(size_t table) const {
  if (plan_[table].parts.empty()) return Route::here;  // a table without elements
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

const TablePart* ShardedTables::part_on(size_t table, int rank) const {
  for (const TablePart& part : plan_[table].parts)
    if (part.rank == rank) return &part;
  return nullptr;
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
    TUTTI_CHECK(
        !by_columns || slices < 2 || options_.optimizer->max_norm == 0,
        "ShardedTables: max_norm is {}, the norm of whole rows, and the plan divides the columns of table '{}'; "
        "plan without column_wise",
        options_.optimizer->max_norm, table.name);
  }
}

void ShardedTables::initialize() {
  abandon_step();
  for (HeldTable& held : held_) held.initialize();
  has_values_ = true;
}

void ShardedTables::set_lr(double lr) {
  TableStep options = *options_.optimizer;
  options.lr = lr;
  table_state(options, 0, 0);  // which refuses what does not fit
  options_.optimizer = options;
}

void ShardedTables::abandon_step() {
  of_step_.reset();
  const std::lock_guard lock(reached_->mutex);
  ++reached_->lookup;
  reached_->gradients.clear();
}

ParcelExchange ShardedTables::exchange(const char* what, uint64_t agreement,
                                       const std::function<std::vector<Tensor>()>& make) {
  return ParcelExchange(
      what, group_,
      [&] {
        std::vector<Tensor> parcels = make();
        for (size_t r = 0; r < parcels.size(); ++r)
          if (r != static_cast<size_t>(rank())) sent_bytes_ += parcels[r].numel();
        return parcels;
      },
      agreement);
}

}  // namespace tutti::parallel
