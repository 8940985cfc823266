#include "tutti/train/task/click_plan.h"

#include <algorithm>
#include <numeric>

#include "tutti/models/dlrm.h"
#include "tutti/parallel/gradient_exchange.h"
#include "tutti/runtime/size_class.h"
#include "tutti/train/task/click_source.h"
#include "tutti/train/task/click_task.h"

namespace tutti::train {
namespace {

constexpr int64_t kF32 = 4, kI64 = 8;

int64_t sum_of(const std::vector<int64_t>& values) { return std::accumulate(values.begin(), values.end(), int64_t{0}); }

// The gradients of the rows that so many samples use: numbers of rows, and their values.
int64_t row_gradient_bytes(const models::DlrmConfig& model, int64_t samples) {
  int64_t bytes = 0;
  for (const int64_t rows : model.table_rows)
    bytes += block_bytes(kI64 * std::min(rows, samples)) + block_bytes(kF32 * model.dim * std::min(rows, samples));
  return bytes;
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
  // Layers do not depend on the rows of tables, which may be more than the memory holds.
  models::DlrmConfig without_rows = model;
  without_rows.table_rows.assign(model.table_rows.size(), 1);
  const models::Dlrm described(without_rows);
  int64_t dense = 0, dense_blocks = 0, parameters = 0, squares = 0;
  size_t table = 0;
  for (const nn::NamedParameter& p : described.named_parameters()) {
    Extents sizes = p.parameter.sizes();
    const bool is_table = p.name.starts_with("tables.");
    if (is_table) sizes[0] = model.table_rows[table++];
    const int64_t bytes = kF32 * numel_of(sizes);
    plan.tensors.push_back({p.name, sizes});
    parameters += block_bytes(bytes);
    if (is_table) squares += block_bytes(kF32 * sizes[0]);
    else dense += bytes, dense_blocks += block_bytes(bytes);
  }
  const int64_t moments = config.optimizer.name == "adamw" ? 2 : 1;
  const int64_t samples = config.clicks.global_batch_samples / config.numerics.virtual_shards;
  const int64_t all_rows = row_gradient_bytes(model, config.clicks.global_batch_samples);
  const int64_t columns = std::ssize(click_columns(config).dense);
  for (int64_t r = 0; r < std::min(ranks, kPlannedRanks); ++r) {
    const auto [begin, end] =
        parallel::shards_of_rank(config.numerics.virtual_shards, static_cast<int>(r), static_cast<int>(ranks));
    const int64_t mine = (end - begin) * samples;
    RankMemory& memory = plan.of_ranks.emplace_back();
    const auto of = [&](MemoryCategory category) -> int64_t& {
      return memory.by_category[static_cast<size_t>(category)];
    };
    of(MemoryCategory::parameters) = parameters;
    of(MemoryCategory::optimizer) = moments * dense_blocks + squares;
    of(MemoryCategory::gradients) = 2 * dense_blocks + row_gradient_bytes(model, mine) + all_rows;
    of(MemoryCategory::activations) = 2 * activation_bytes(model, samples);
    of(MemoryCategory::data) = mine * (kF32 * (columns + 1) + kI64 * std::ssize(model.table_rows));
    if (config.checkpoint.async) of(MemoryCategory::workspace) = parameters + moments * dense_blocks + squares;
    for (PlannedTensor& tensor : plan.tensors) tensor.stored_bytes.push_back(kF32 * numel_of(tensor.sizes));
  }
  if (ranks > 1) {
    const auto others = static_cast<double>(ranks - 1);
    plan.gradient_bytes =
        2 * static_cast<double>(dense) * others / static_cast<double>(ranks) +
        static_cast<double>(row_gradient_bytes(model, config.clicks.global_batch_samples / ranks)) * others;
  }
  return plan;
}

}  // namespace tutti::train
