// Tables that ranks divide: the bits of nn::TableBatchedEmbeddingBags on one rank for every plan, number of ranks,
// optimizer and pooling.
#include <gtest/gtest.h>

#include "tests/parallel/support/shared_lookups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/sum_to.h"

namespace tutti::parallel {
namespace {

void expect_bits_of_one_rank(const nn::TableBatchedOptions& options, bool weighted, const std::vector<int>& all_ranks,
                             const std::vector<std::vector<TablePlacement>>& plans,
                             const std::vector<nn::TableConfig>& tables = configs()) {
  const Trained one = on_one_rank(options, weighted, tables);
  for (const int ranks : all_ranks) {
    for (const auto& placements : plans) {
      for (const Schedule schedule : {Schedule::once_a_step, Schedule::every_round}) {
        std::vector<Tensor> last(kCount);
        nn::StateDict state;
        comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
          seed_all(4);
          ShardedTables sharded(tables, options, plan_of(tables, options, ranks, placements), kCount, &group, schedule);
          sharded.initialize();
          train(sharded, weighted, 1, kSteps, &last);
          const nn::StateDict whole = sharded.gathered();
          if (group.rank() == 0) state = whole;
        });
        SCOPED_TRACE(testing::Message() << ranks << " ranks, " << name_of(placements[0]) << " first, schedule "
                                        << static_cast<int>(schedule));
        ASSERT_NO_FATAL_FAILURE(expect_same_state(state, one.state));
        for (size_t s = 0; s < last.size(); ++s)
          ASSERT_NO_FATAL_FAILURE(expect_same_bits(last[s], one.looked_up[s], fmt::format("shard {}", s)));
      }
    }
  }
}

const std::vector<std::vector<TablePlacement>> kPlans = {
    {data_parallel}, {table_wise}, {column_wise}, {row_wise}, {table_row_wise}, {column_wise, row_wise, data_parallel}};

TEST(ShardedTables, HaveTheBitsOfOneRankForEveryPlan) {
  expect_bits_of_one_rank(options_of({.lr = 0.1}, DType::f32, TablePooling::sum), false, {1, 2, 3, 4, 5, 8}, kPlans);
}

TEST(ShardedTables, HaveThemForEveryOptimizer) {
  for (const TableStep& optimizer :
       {TableStep{.optimizer = TableOptimizer::sgd, .lr = 0.1},
        TableStep{.optimizer = TableOptimizer::adagrad, .lr = 0.1},
        TableStep{.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::l2},
        TableStep{.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::decoupled},
        TableStep{.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::global, .least_decay = 0.5},
        TableStep{.optimizer = TableOptimizer::adam, .lr = 0.1, .weight_decay = 0.1},
        TableStep{.optimizer = TableOptimizer::partial_rowwise_adam, .lr = 0.1, .weight_decay = 0.1}})
    expect_bits_of_one_rank(options_of(optimizer, DType::f32, TablePooling::sum), false, {3, 4}, kPlans);
  expect_bits_of_one_rank(options_of({.lr = 0.1, .max_norm = 2.0}, DType::f32, TablePooling::sum), false, {4},
                          {{data_parallel}, {table_wise}, {row_wise}});
}

TEST(ShardedTables, HaveThemWithWeightsMeansSequencesAndHalfPrecision) {
  const TableStep adagrad{.lr = 0.1};
  expect_bits_of_one_rank(options_of(adagrad, DType::f32, TablePooling::sum), true, {3, 4}, kPlans);
  expect_bits_of_one_rank(options_of(adagrad, DType::f32, TablePooling::mean), true, {4}, kPlans);
  expect_bits_of_one_rank(options_of(adagrad, DType::f32, TablePooling::mean), false, {4}, kPlans);
  for (const DType dtype : {DType::bf16, DType::f16})  // rounded at random
    expect_bits_of_one_rank(options_of(adagrad, dtype, TablePooling::sum), false, {3, 4}, kPlans);
  std::vector<nn::TableConfig> of_one_width = configs();
  for (nn::TableConfig& t : of_one_width) t.columns = 40;
  expect_bits_of_one_rank(options_of(adagrad, DType::f32, TablePooling::none), false, {3, 4}, kPlans, of_one_width);
}

TEST(ShardedTables, HaveThemWhereAShardHasManyRangesOfBags) {
  const TokenGrainScope grain(2);
  expect_bits_of_one_rank(options_of({.lr = 0.1}, DType::f32, TablePooling::sum), true, {3, 8}, kPlans);
}

TEST(ShardedTables, TablesWithoutRowsOrColumnsAndTablesThatNobodyLooksUp) {
  std::vector<nn::TableConfig> tables = configs();
  tables.push_back({"nothing", 0, 3});
  tables.push_back({"unused", 9, 4});
  nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  expect_bits_of_one_rank(options, false, {2, 3}, kPlans, tables);
}

TEST(ShardedTables, AStateGoesOnUnderAnotherPlanAndOtherRanks) {
  const nn::TableBatchedOptions options =
      options_of({.lr = 0.1, .weight_decay = 0.1, .decay = TableDecay::global}, DType::bf16, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  nn::StateDict middle, end;
  comm::run_ranks(4, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 4, {column_wise, row_wise}), kCount, &group);
    tables.initialize();
    train(tables, false, 1, 2);
    const nn::StateDict whole = tables.gathered();
    if (group.rank() == 0) middle = whole;
  });
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 3, {row_wise, table_wise}), kCount, &group);
    tables.load(middle);
    EXPECT_EQ(tables.steps_taken(), 2);
    train(tables, false, 3, 3);
    const nn::StateDict whole = tables.gathered();
    if (group.rank() == 0) end = whole;
  });
  expect_same_state(end, one.state);
}

// The program of docs/embeddings.md.
void run(const std::vector<nn::TableConfig>& tables, const nn::TableBatchedOptions& options, const EmbeddingPlan& plan,
         const std::vector<TableBatch>& batches, comm::ProcessGroup& group) {
  ShardedTables sharded(tables, options, plan, kCount, &group);
  sharded.initialize();
  const std::vector<Tensor> looked_up = sharded.look_up(batches);  // one batch for each shard of this rank
  for (const Tensor& values : looked_up) backward(loss_of(values));
  sharded.step();
  EXPECT_EQ(sharded.steps_taken(), 1);
}
TEST(ShardedTables, AreUsedAsTheirPageSays) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    seed_all(4);
    std::vector<TableBatch> batches;
    for (int64_t s = 0; s < 4; ++s) batches.push_back(batch_of(1, 4 * group.rank() + s, false));
    run(configs(), options, plan_of(configs(), options, 2, {row_wise}), batches, group);
  });
}

// What is behind a call is the caller's again.
TEST(ShardedTables, BatchesMayChangeAfterTheCall) {
  std::vector<nn::TableConfig> tables = configs();
  for (nn::TableConfig& t : tables) t.columns = 40;
  for (const TablePooling pooling : {TablePooling::none, TablePooling::mean}) {
    const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, pooling);
    const Trained one = on_one_rank(options, false, tables);
    comm::run_ranks(3, [&](comm::ProcessGroup& group) {
      seed_all(4);
      ShardedTables sharded(tables, options, plan_of(tables, options, 3, {column_wise, row_wise, data_parallel}),
                            kCount, &group);
      sharded.initialize();
      for (int64_t step = 1; step <= kSteps; ++step) {
        std::vector<TableBatch> batches = batches_of(sharded, step);
        sharded.send_indices(batches);
        for (const TableBatch& batch : batches) {
          std::fill_n(batch.offsets.data<int64_t>(), batch.offsets.numel(), int64_t{1} << 40);
          std::fill_n(batch.indices.data<int64_t>(), batch.indices.numel(), int64_t{-5});
        }
        for (const Tensor& values : sharded.look_up()) backward(loss_of(values));
        sharded.step();
      }
      expect_same_state(sharded.gathered(), one.state);
    });
  }
}

// What is absent adds nothing, also where it leaves a rank with nothing.
TEST(ShardedTables, ShardsWithoutBackwardAddNothingOnAnyRanks) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const auto skips = [](int64_t step, int64_t shard) { return (shard + step) % 4 == 1; };
  seed_all(4);
  nn::TableBatchedEmbeddingBags module(configs(), options);
  nn::initialize(module);
  for (int64_t step = 1; step <= kSteps; ++step) {
    for (int64_t s = 0; s < kCount; ++s) {
      const Tensor y = module.forward(batch_of(step, s, false), s);
      if (!skips(step, s)) backward(loss_of(y));
    }
    module.step();
  }
  for (const int ranks : {1, 4, 8}) {
    for (const auto& placements : kPlans) {
      comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
        seed_all(4);
        ShardedTables tables(configs(), options, plan_of(configs(), options, ranks, placements), kCount, &group,
                             Schedule::every_round);
        tables.initialize();
        for (int64_t step = 1; step <= kSteps; ++step) {
          std::vector<TableBatch> batches = batches_of(tables, step);
          const std::vector<Tensor> y = tables.look_up(batches);
          for (size_t b = 0; b < y.size(); ++b)
            if (!skips(step, tables.shards()[b])) backward(loss_of(y[b]));
          tables.step();
        }
        const nn::StateDict state = tables.gathered();
        for (size_t t = 0; t < configs().size(); ++t)
          expect_same_bits(state[t].second, module.weight(t).master(), state[t].first);
      });
    }
  }
}

TEST(ShardedTables, IndicesTravelWhileAStepIsTaken) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 3, {column_wise, row_wise, data_parallel}),
                         kCount, &group);
    tables.initialize();
    const auto send = [&](int64_t step) { tables.send_indices(batches_of(tables, step, false, DType::i32)); };
    send(1);
    for (int64_t step = 1; step <= kSteps; ++step) {
      const std::vector<Tensor> y = tables.look_up();
      if (step < kSteps) send(step + 1);
      for (const Tensor& values : y) backward(loss_of(values));
      tables.step();
    }
    expect_same_state(tables.gathered(), one.state);
  });
}

TEST(ShardedTables, EvaluationTakesAnyNumberOfBatchesAndNoPartInAStep) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {row_wise, column_wise}), kCount, &group);
    tables.initialize();
    const auto look = [&] {
      const nn::EvalScope evaluating(tables);
      const std::vector<TableBatch> batches(group.rank() == 0 ? 3 : 0, batch_of(9, 1, false));
      return tables.look_up(batches);
    };
    EXPECT_EQ(look().size(), group.rank() == 0 ? 3u : 0u);
    for (int64_t step = 1; step <= kSteps; ++step) {
      std::vector<TableBatch> batches = batches_of(tables, step);
      const std::vector<Tensor> y = tables.look_up(batches);
      look();
      for (const Tensor& values : y) backward(loss_of(values));
      tables.step();
    }
    expect_same_state(tables.gathered(), one.state);
  });
}

TEST(ShardedTables, AnAbandonedStepLeavesNothing) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {row_wise, column_wise}), kCount, &group);
    tables.initialize();
    std::vector<TableBatch> batches = batches_of(tables, 7);
    const std::vector<Tensor> y = tables.look_up(batches);
    backward(loss_of(y[0]));
    tables.abandon_step();
    backward(loss_of(y[1]));  // of a lookup that counts no more
    train(tables, false, 1, kSteps);
    expect_same_state(tables.gathered(), one.state);
  });
}

TEST(ShardedTables, WarnedAndIgnoredIndicesAddNothingForEveryPlan) {
  nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::mean);
  options.batch.bounds = BoundsCheck::ignore;
  std::vector<nn::TableConfig> short_tables = configs();  // the batches look up rows that are not there
  short_tables[0].rows = 20;
  short_tables[2].rows = 100;
  expect_bits_of_one_rank(options, false, {3, 4}, kPlans, short_tables);
}

}  // namespace
}  // namespace tutti::parallel
