// What tables that ranks divide send, over which transports, and rows that nearly all lookups share.
#include <gtest/gtest.h>

#include <mutex>

#include "tests/parallel/support/hot_row.h"
#include "tests/parallel/support/shared_lookups.h"

namespace tutti::parallel {
namespace {

TEST(ShardedTables, AHotRowHasOneSumOnAnyRanksThreadsAndPlans) { expect_same_steps_of_a_hot_row(1 << 14); }

// Bags of three rows that nobody else looks up, so that a plan's expectation is exact but for lengths and flags.
TEST(ShardedTables, SendAsManyBytesAsThePlanSays) {
  constexpr int64_t kRows = 40000, kColumns = 64, kShards = 8, kBagsOfShard = 50, kPooling = 3;
  const std::vector<nn::TableConfig> tables = {{"wide", kRows, kColumns}};
  const nn::TableBatchedOptions options{.optimizer = TableStep{.lr = 0.1}};
  for (const int ranks : {2, 4}) {
    for (const TablePlacement placement : {data_parallel, table_wise, column_wise, row_wise}) {
      const PlannedTable planned = planned_table(tables[0], options, kPooling);
      const EmbeddingPlan plan =
          plan_embeddings(std::array{planned},
                          {.ranks = ranks, .memory_bytes = 1 << 30, .batch = kShards * kBagsOfShard}, {{placement}});
      std::mutex mutex;
      int64_t sent = 0;
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        seed_all(4);
        ShardedTables sharded(tables, options, plan, kShards, &group);
        sharded.initialize();
        std::vector<TableBatch> batches;
        for (const int64_t s : sharded.shards()) {
          std::vector<int64_t> indices, offsets = {0};
          for (int64_t p = 0; p < kBagsOfShard * kPooling; ++p)
            indices.push_back((s * kBagsOfShard * kPooling + p) * 7919 % kRows);  // 7,919 and 40,000 share no factor
          for (int64_t b = 1; b <= kBagsOfShard; ++b) offsets.push_back(b * kPooling);
          batches.push_back({.indices = Tensor::of<int64_t>(indices), .offsets = Tensor::of<int64_t>(offsets)});
        }
        for (const Tensor& y : sharded.look_up(batches)) backward(loss_of(y));
        sharded.step();
        const std::lock_guard lock(mutex);
        sent += sharded.sent_bytes();
      });
      const double ratio = static_cast<double>(sent) / plan.tables[0].sent_bytes;
      EXPECT_GT(ratio, 0.9) << ranks << " ranks, " << name_of(placement);
      EXPECT_LT(ratio, 1.15) << ranks << " ranks, " << name_of(placement);
    }
  }
}

TEST(ShardedTables, TakesAnyTransport) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  for (const char* transport : {"shm", "gloo"}) {
    comm::run_ranks(3,
                    [&](comm::ProcessGroup& group) {
                      seed_all(4);
                      ShardedTables tables(configs(), options, plan_of(configs(), options, 3, {column_wise, row_wise}),
                                           kCount, &group);
                      tables.initialize();
                      train(tables, false, 1, kSteps);
                      expect_same_state(tables.gathered(), one.state);
                      EXPECT_GT(tables.sent_bytes(), 0);
                    },
                    {.transport = transport});
  }
}

}  // namespace
}  // namespace tutti::parallel
