// Gradients of the weights of samples, of lookups in tables that ranks divide.
#include <gtest/gtest.h>

#include "tests/parallel/support/shared_lookups.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/inplace.h"

namespace tutti::parallel {
namespace {

const std::vector<TablePlacement> kPlacements = {data_parallel, table_wise, column_wise, row_wise, table_row_wise};

// The batch of a shard in the first step, with weights that want a gradient.
TableBatch wanting(int64_t shard) {
  TableBatch batch = batch_of(1, shard, true);
  requires_grad_(batch.per_sample_weights);
  return batch;
}

// By shard, of lookups on one rank.
std::vector<Tensor> gradients_of_one_rank(const nn::TableBatchedOptions& options) {
  seed_all(4);
  nn::TableBatchedEmbeddingBags module(configs(), options);
  nn::initialize(module);
  std::vector<Tensor> gradients;
  for (int64_t s = 0; s < kCount; ++s) {
    const TableBatch batch = wanting(s);
    backward(loss_of(module.forward(batch, s)));
    gradients.push_back(grad_of(batch.per_sample_weights));
  }
  return gradients;
}

// The formula of a sum in double precision: the gradient of a weight is the product of a row and its bag's gradient.
TEST(ShardedTablesWeights, HaveTheGradientOfTheFormula) {
  const nn::TableConfig config{"wide", 6, 64};
  nn::TableBatchedOptions options{.optimizer = TableStep{.optimizer = TableOptimizer::sgd, .lr = 0.5}};
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables({config}, options, plan_of({config}, options, 2, {column_wise}), 2, &group);
    tables.initialize();
    const Tensor table = tables.gathered()[0].second;
    const std::vector<int64_t> rows = {5, 0, 5, 2}, offsets = {0, 3, 3, 4};
    const Tensor weights = Tensor::of<float>({0.5f, -2.0f, 1.5f, 3.0f});
    requires_grad_(weights);
    const std::vector<Tensor> y = tables.look_up(std::array{TableBatch{
        .indices = Tensor::of<int64_t>(rows), .offsets = Tensor::of<int64_t>(offsets), .per_sample_weights = weights}});
    backward(loss_of(y[0]));  // sum of squares: the gradient of a bag is twice its value
    for (size_t p = 0; p < rows.size(); ++p) {
      const size_t bag = p < 3 ? 0 : 2;
      double expected = 0;
      for (int64_t d = 0; d < 64; ++d) {
        double value = 0;
        for (int64_t q = offsets[bag]; q < offsets[bag + 1]; ++q)
          value += static_cast<double>(weights.data<float>()[q]) *
                   static_cast<double>(table.data<float>()[rows[static_cast<size_t>(q)] * 64 + d]);
        expected += 2 * value * static_cast<double>(table.data<float>()[rows[p] * 64 + d]);
      }
      EXPECT_NEAR(static_cast<double>(grad_of(weights).data<float>()[p]), expected, 1e-4 * (1 + std::abs(expected)));
    }
    tables.step();
  });
}

TEST(ShardedTablesWeights, MayChangeAfterTheCall) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::mean);
  const std::vector<Tensor> expected = gradients_of_one_rank(options);
  for (const int ranks : {1, 4}) {
    comm::run_ranks(ranks, [&](comm::ProcessGroup& group) {
      seed_all(4);
      ShardedTables tables(configs(), options, plan_of(configs(), options, ranks, kPlacements), kCount, &group);
      tables.initialize();
      std::vector<TableBatch> batches;
      for (const int64_t s : tables.shards()) batches.push_back(wanting(s));
      tables.send_indices(batches);
      for (const TableBatch& batch : batches) {
        const NoGradScope no_grad;
        zero_(batch.per_sample_weights);
        zero_(batch.indices);
      }
      const std::vector<Tensor> y = tables.look_up();
      for (const Tensor& values : y) backward(loss_of(values));
      for (size_t b = 0; b < y.size(); ++b)
        expect_same_bits(grad_of(batches[b].per_sample_weights), expected[static_cast<size_t>(tables.shards()[b])],
                         fmt::format("shard {} of {} ranks", tables.shards()[b], ranks));
    });
  }
}

TEST(ShardedTablesWeights, HaveGradientsInEvaluationWhereOtherRanksHaveNoBatches) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::bf16, TablePooling::sum);
  const std::vector<Tensor> expected = gradients_of_one_rank(options);
  for (const TablePlacement placement : kPlacements) {
    comm::run_ranks(4, [&](comm::ProcessGroup& group) {
      seed_all(4);
      ShardedTables tables(configs(), options, plan_of(configs(), options, 4, {placement}), kCount, &group);
      tables.initialize();
      tables.eval();
      std::vector<TableBatch> batches;
      for (int64_t s = 0; s < group.rank(); ++s) batches.push_back(wanting(s));
      const std::vector<Tensor> y = tables.look_up(batches);
      for (size_t s = 0; s < y.size(); ++s) {
        backward(loss_of(y[s]));
        expect_same_bits(grad_of(batches[s].per_sample_weights), expected[s], fmt::format("batch {}", s));
      }
    });
  }
}

}  // namespace
}  // namespace tutti::parallel
