// Tables that features share, batches of lookups in them, and training with them on one rank and on several.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/reduction.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {

inline constexpr int64_t kCount = 8, kSteps = 3;
using enum TablePlacement;

// Four features look up three tables; "user" is looked up by the first and the last.
inline std::vector<nn::TableConfig> configs() { return {{"user", 41, 64}, {"item", 7, 33}, {"shop", 300, 5}}; }
inline const std::vector<int64_t> kFeatures = {0, 1, 2, 0};
inline constexpr int64_t kBags = 5;

// The batch of a shard in a step: ragged bags, some of them empty; shard 3 has no bags at all.
inline TableBatch batch_of(int64_t step, int64_t shard, bool weighted, DType index = DType::i64) {
  const uint64_t seed = static_cast<uint64_t>(100 * step + 2 * shard);
  const int64_t bags = shard == 3 ? 0 : kBags;
  const Tensor lengths = facets::sample_tensor(seed, {4 * bags}, DType::i64, 0, 5);
  std::vector<int64_t> offsets = {0}, indices;
  for (int64_t k = 0; k < 4 * bags; ++k) {
    offsets.push_back(offsets.back() + lengths.data<int64_t>()[k]);
    const int64_t table = kFeatures[static_cast<size_t>(k / bags)], rows = configs()[static_cast<size_t>(table)].rows;
    for (int64_t p = offsets[offsets.size() - 2]; p < offsets.back(); ++p)
      indices.push_back((p * p * 7 + step * 3 + shard) % rows);
  }
  TableBatch batch{.indices = Tensor::of<int64_t>(indices), .offsets = Tensor::of<int64_t>(offsets)};
  if (index == DType::i32) {
    batch.indices = cast(batch.indices, DType::i32);
    batch.offsets = cast(batch.offsets, DType::i32);
  }
  if (weighted) batch.per_sample_weights = facets::sample_tensor(seed + 1, batch.indices.extents(), DType::f32, 0.5, 2);
  return batch;
}

inline Tensor loss_of(const Tensor& y) { return sum(mul(y, y)); }

struct Trained {
  nn::StateDict state;
  std::vector<Tensor> looked_up;  // of the last step, by shard
};

inline nn::TableBatchedOptions options_of(const TableStep& optimizer, DType dtype, TablePooling pooling) {
  return {.batch = {.pooling = pooling}, .features = kFeatures, .dtype = dtype, .optimizer = optimizer};
}

inline Trained on_one_rank(const nn::TableBatchedOptions& options, bool weighted,
                           const std::vector<nn::TableConfig>& tables = configs()) {
  seed_all(4);
  nn::TableBatchedEmbeddingBags module(tables, options);
  nn::initialize(module);
  Trained trained;
  for (int64_t step = 1; step <= kSteps; ++step) {
    trained.looked_up.clear();
    for (int64_t s = 0; s < kCount; ++s) {
      const Tensor y = module.forward(batch_of(step, s, weighted), s);
      backward(loss_of(y));
      trained.looked_up.push_back(detach(y));
    }
    module.step();
  }
  trained.state = module.state_dict();
  for (auto& entry : module.optimizer_state()) trained.state.push_back(entry);
  return trained;
}

// A plan that gives each table a placement, where it can have it.
inline EmbeddingPlan plan_of(const std::vector<nn::TableConfig>& tables, const nn::TableBatchedOptions& options,
                             int ranks, const std::vector<TablePlacement>& placements) {
  EmbeddingPlan plan;
  for (size_t t = 0; t < tables.size(); ++t) {
    std::vector<TablePlacement> allowed = {placements[t % placements.size()]};
    const bool nodes = ranks % 2 == 0 && ranks > 2;
    if (allowed[0] == table_row_wise && !nodes) allowed = {row_wise};
    if (allowed[0] == column_wise && tables[t].columns <= 16) allowed = {table_wise};
    const PlannedTable table = planned_table(tables[t], options, 3);
    plan.tables.push_back(
        plan_embeddings(std::array{table},
                        {.ranks = ranks, .nodes = nodes ? 2 : 1, .memory_bytes = 1 << 30, .batch = 40}, allowed)
            .tables[0]);
  }
  return plan;
}

inline void expect_same_state(const nn::StateDict& a, const nn::StateDict& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].first, b[i].first);
    ASSERT_NO_FATAL_FAILURE(expect_same_bits(a[i].second, b[i].second, a[i].first));
  }
}

// The batches of the shards of this rank.
inline std::vector<TableBatch> batches_of(const ShardedTables& tables, int64_t step, bool weighted = false,
                                          DType index = DType::i64) {
  std::vector<TableBatch> batches;
  for (const int64_t s : tables.shards()) batches.push_back(batch_of(step, s, weighted, index));
  return batches;
}

inline void train(ShardedTables& tables, bool weighted, int64_t first_step, int64_t last_step,
                  std::vector<Tensor>* last = nullptr) {
  for (int64_t step = first_step; step <= last_step; ++step) {
    const std::vector<Tensor> y = tables.look_up(batches_of(tables, step, weighted));
    for (size_t b = y.size(); b-- > 0;) backward(loss_of(y[b]));  // in any order
    tables.step();
    if (last != nullptr && step == last_step)
      for (size_t b = 0; b < y.size(); ++b) (*last)[static_cast<size_t>(tables.shards()[b])] = detach(y[b]);
  }
}

}  // namespace tutti::parallel
