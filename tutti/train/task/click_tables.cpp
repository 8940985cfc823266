#include "tutti/train/task/click_tables.h"

#include <algorithm>
#include <limits>

#include "tutti/core/error.h"
#include "tutti/io/safetensors_shards.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/train/config/data_degrees.h"
#include "tutti/train/task/click_source.h"

namespace tutti::train {
namespace {

nn::TableBatchedOptions table_options(const Config& config) {
  return {.optimizer = TableStep{.lr = config.tables.lr, .eps = config.tables.eps}};
}

parallel::TablePlacement placement_of(const std::string& name) {
  using enum parallel::TablePlacement;
  for (const parallel::TablePlacement placement : {data_parallel, table_wise, column_wise, row_wise})
    if (name_of(placement) == name) return placement;
  throw UsageError(fmt::format("tables.placements has '{}'", name));
}

}  // namespace

models::DlrmConfig click_model(const Config& config) {
  return {.dense_features = std::ssize(click_columns(config).dense),
          .table_rows = config.clicks.table_rows,
          .dim = config.tables.dim,
          .bottom = config.dlrm.bottom,
          .top = config.dlrm.top,
          .tables_apart = true};
}

ClickTablesPlan plan_click_tables(const Config& config, int64_t ranks) {
  ClickTablesPlan plan;
  for (const nn::TableConfig& table : models::tables_of(click_model(config)))
    plan.tables.push_back(parallel::planned_table(table, table_options(config), 1));
  std::vector<parallel::TablePlacement> allowed;
  for (const std::string& name : config.tables.placements) allowed.push_back(placement_of(name));
  const int64_t memory = config.tables.memory_mib;
  // Half of all numbers, so that sums over tables stay below them.
  constexpr int64_t unlimited = std::numeric_limits<int64_t>::max() / 2;
  try {
    plan.plan =
        parallel::plan_embeddings(plan.tables,
                                  {.ranks = ranks,
                                   .memory_bytes = memory == 0 ? unlimited : std::min(memory, unlimited >> 20) << 20,
                                   .batch = config.clicks.global_batch_samples},
                                  allowed);
  } catch (const UsageError& e) {
    throw UsageError(fmt::format("tables.placements = [{}] and tables.memory_mib = {} on {} rank{}: {}",
                                 fmt::join(config.tables.placements, ", "), memory, ranks, ranks == 1 ? "" : "s",
                                 e.what()));
  }
  return plan;
}

std::unique_ptr<parallel::ShardedTables> make_click_tables(const Config& config, comm::ProcessGroup* group) {
  const ClickTablesPlan plan = plan_click_tables(config, group == nullptr ? 1 : group->size());
  return std::make_unique<parallel::ShardedTables>(
      models::tables_of(click_model(config)), table_options(config), plan.plan, config.numerics.virtual_shards, group,
      parallel::parse_schedule(chosen_schedule(config.parallelism, false)));
}

void load_click_weights(const std::filesystem::path& file, models::Dlrm& model, parallel::ShardedTables& tables) {
  const SafetensorsShards values(file);
  nn::StateDict of_layers, of_tables;
  for (const io::SafetensorsEntry& entry : values.entries())
    (entry.name.starts_with("tables.") ? of_tables : of_layers).emplace_back(entry.name, values.tensor(entry.name));
  tables.load(of_tables);
  model.load_state_dict(of_layers);
}

}  // namespace tutti::train
