#include "tutti/train/task/click_plan.h"

#include <algorithm>
#include <numeric>

#include "tutti/models/dlrm.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/runtime/size_class.h"
#include "tutti/train/task/click_source.h"
#include "tutti/train/task/click_tables.h"

namespace tutti::train {
namespace {

constexpr int64_t kF32 = 4, kI64 = 8;

int64_t sum_of(const std::vector<int64_t>& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

// What a rank sends and gets for so many samples: a row of each table, and the gradient of each.
int64_t lookup_bytes(const models::DlrmConfig& model, int64_t samples) {
  return 2 * samples * std::ssize(model.table_rows) * (kI64 + kF32 * model.dim);
}

// What forward keeps of a virtual shard for backward, which makes as much of cotangents.
int64_t activation_bytes(const models::DlrmConfig& model, int64_t samples) {
  const auto tables = std::ssize(model.table_rows);
  const int64_t pairs = (tables + 1) * tables / 2;
  const int64_t layers = 2 * (sum_of(model.bottom) + sum_of(model.top)) + model.dim;  // products, and what ReLU makes
  const int64_t lookups = (2 * tables + 1) * model.dim;                               // rows, and these side by side
  return kF32 * samples * (layers + lookups + 2 * pairs + model.dim);
}

}  // namespace

StepPlan plan_click_step(const Config& config, int64_t ranks, bool is_shared) {
  const models::DlrmConfig model = click_model(config);
  models::validate(model);
  StepPlan plan{.ranks = ranks, .degrees = data_degrees(config.parallelism, ranks), .is_shared = is_shared};
  const ClickTablesPlan tables = plan_click_tables(config, ranks);
  const models::Dlrm layers(model);
  int64_t dense = 0, dense_blocks = 0;
  for (const nn::NamedParameter& p : layers.named_parameters()) {
    plan.tensors.push_back({p.name, p.parameter.sizes()});
    dense += kF32 * p.parameter.numel();
    dense_blocks += block_bytes(kF32 * p.parameter.numel());
  }
  const size_t of_layers = plan.tensors.size();
  for (const parallel::PlannedTable& t : tables.tables) plan.tensors.push_back({t.name + ".weight", {t.rows, t.width}});
  const int64_t moments = config.optimizer.name == "adamw" ? 2 : 1;
  const int64_t samples = config.clicks.global_batch_samples / config.numerics.virtual_shards;
  const int64_t columns = std::ssize(click_columns(config).dense);
  for (int64_t r = 0; r < std::min(ranks, kPlannedRanks); ++r) {
    const auto [begin, end] =
        parallel::shards_of_rank(config.numerics.virtual_shards, static_cast<int>(r), static_cast<int>(ranks));
    const int64_t mine = (end - begin) * samples;
    RankMemory& memory = plan.of_ranks.emplace_back();
    const auto of = [&](MemoryCategory category) -> int64_t& {
      return memory.by_category[static_cast<size_t>(category)];
    };
    int64_t weights = dense_blocks, squares = 0;
    for (size_t i = 0; i < plan.tensors.size(); ++i) {
      PlannedTensor& tensor = plan.tensors[i];
      int64_t stored = i < of_layers ? kF32 * numel_of(tensor.sizes) : 0;
      if (i >= of_layers) {
        for (const parallel::TablePart& part : tables.plan.tables[i - of_layers].parts) {
          if (part.rank != r) continue;
          stored = kF32 * (part.row_end - part.row_begin) * (part.column_end - part.column_begin);
          squares += block_bytes(kF32 * (part.row_end - part.row_begin));
        }
        weights += block_bytes(stored);
      }
      tensor.stored_bytes.push_back(stored);
    }
    of(MemoryCategory::parameters) = weights;
    of(MemoryCategory::optimizer) = moments * dense_blocks + squares;
    of(MemoryCategory::gradients) = 2 * dense_blocks + lookup_bytes(model, mine);
    of(MemoryCategory::activations) = 2 * activation_bytes(model, samples);
    // The rows of the next step are read ahead.
    of(MemoryCategory::data) = 2 * mine * (kF32 * (columns + 1) + kI64 * std::ssize(model.table_rows));
    if (config.checkpoint.async) of(MemoryCategory::workspace) = weights + moments * dense_blocks + squares;
  }
  if (ranks > 1)
    plan.gradient_bytes = 2 * static_cast<double>(dense) * static_cast<double>(ranks - 1) / static_cast<double>(ranks) +
                          *std::max_element(tables.plan.sent_bytes.begin(), tables.plan.sent_bytes.end());
  return plan;
}

}  // namespace tutti::train
