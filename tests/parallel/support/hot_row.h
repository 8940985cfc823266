// A step in which nearly all lookups are of one row, on any ranks, threads and plans.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/same_bits.h"
#include "tutti/autograd/backward.h"
#include "tutti/autograd/tape.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/parallel/sharded_tables.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::parallel {

// `lookups` bags of one row each over eight shards; all but one of 20 are row 7 of a table of 1,000 rows and 32
// columns.
inline void expect_same_steps_of_a_hot_row(int64_t lookups) {
  constexpr int64_t kShards = 8, kRows = 1000, kColumns = 128;
  const int64_t bags = lookups / kShards;
  const std::vector<nn::TableConfig> tables = {{"hot", kRows, kColumns}};
  const nn::TableBatchedOptions options{.optimizer = TableStep{.lr = 0.1}};
  std::vector<TableBatch> batches;
  std::vector<Tensor> gradients;
  for (int64_t s = 0; s < kShards; ++s) {
    const Tensor indices = Tensor::empty({bags}, DType::i64), offsets = Tensor::empty({bags + 1}, DType::i64),
                 gradient = Tensor::empty({bags, kColumns}, DType::f32);
    for (int64_t b = 0; b <= bags; ++b) offsets.data<int64_t>()[b] = b;
    for (int64_t b = 0; b < bags; ++b) indices.data<int64_t>()[b] = (b + s) % 20 == 0 ? (b * 31 + s) % kRows : 7;
    for (int64_t i = 0; i < gradient.numel(); ++i)  // sums that depend on their order
      gradient.data<float>()[i] = static_cast<float>((i * 2654435761 + s * 97) % 1000003) * 1e-6f;
    batches.push_back({.indices = indices, .offsets = offsets});
    gradients.push_back(gradient);
  }
  const auto nodes_of = [](int ranks) { return ranks > 2 && ranks % 2 == 0 ? 2 : 1; };
  nn::StateDict expected;
  const auto run = [&](int ranks, int threads, std::vector<TablePlacement> allowed) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      seed_all(4);
      RankContext::current().set_threads(threads);
      const PlannedTable planned = planned_table(tables[0], options, 1);
      const EmbeddingPlan plan = plan_embeddings(
          std::array{planned}, {.ranks = ranks, .nodes = nodes_of(ranks), .memory_bytes = 1 << 30, .batch = lookups},
          allowed);
      ShardedTables sharded(tables, options, plan, kShards, &group);
      sharded.initialize();
      std::vector<TableBatch> mine;
      for (const int64_t s : sharded.shards()) mine.push_back(batches[static_cast<size_t>(s)]);
      const std::vector<Tensor> looked_up = sharded.look_up(mine);
      for (size_t b = 0; b < mine.size(); ++b)
        backward(looked_up[b], gradients[static_cast<size_t>(sharded.shards()[b])]);
      sharded.step();
      const nn::StateDict state = sharded.gathered();
      if (group.rank() != 0) return;
      if (expected.empty()) expected = state;
      for (size_t i = 0; i < state.size(); ++i)
        expect_same_bits(state[i].second, expected[i].second, fmt::format("{} ranks, {} threads", ranks, threads));
    });
  };
  using enum TablePlacement;
  for (const int threads : {1, 2, 4}) run(1, threads, {});
  for (const int ranks : {2, 3, 5, 8}) {
    for (const TablePlacement placement : {data_parallel, table_wise, column_wise, row_wise, table_row_wise}) {
      if (placement != table_row_wise || nodes_of(ranks) > 1) run(ranks, 2, {placement});
    }
  }
}

}  // namespace tutti::parallel
