// The embedding tables of a click model, as a configuration describes them, and their plan.
#pragma once

#include <filesystem>
#include <memory>

#include "tutti/models/dlrm.h"
#include "tutti/parallel/embedding_plan.h"
#include "tutti/train/config/config.h"

namespace tutti::comm {
class ProcessGroup;
}
namespace tutti::parallel {
class ShardedTables;
}

namespace tutti::train {

// The model that the configuration describes; its tables are apart.
models::DlrmConfig click_model(const Config& config);

// Which of so many ranks hold which parts of the tables. UsageError, naming the keys, when the placements that are
// allowed and the memory leave no place for a table.
struct ClickTablesPlan {
  std::vector<parallel::PlannedTable> tables;
  parallel::EmbeddingPlan plan;
};
ClickTablesPlan plan_click_tables(const Config& config, int64_t ranks);

// The tables over the ranks of `group`, without values. Collective.
std::unique_ptr<parallel::ShardedTables> make_click_tables(const Config& config, comm::ProcessGroup* group);

// Copies the values of the model file of a checkpoint into both; the optimizer of the tables begins anew. Not
// collective, but all ranks must load the same.
void load_click_weights(const std::filesystem::path& file, models::Dlrm& model, parallel::ShardedTables& tables);

}  // namespace tutti::train
