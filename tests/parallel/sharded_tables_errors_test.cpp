// Tables that ranks divide: wrong arguments are errors on all ranks, which can go on.
#include <gtest/gtest.h>

#include <functional>

#include "tests/parallel/support/shared_lookups.h"
#include "tests/support/message_of.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/ops/copy.h"

namespace tutti::parallel {
namespace {

TEST(ShardedTables, ARefusedBatchIsAnErrorOnAllRanksThatCanGoOn) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 3, {row_wise, column_wise}), kCount, &group);
    std::vector<TableBatch> batches;
    for (const int64_t s : tables.shards()) batches.push_back(batch_of(1, s, false));
    EXPECT_NE(message_of([&] { tables.look_up(batches); }).find("have no values yet"), std::string::npos);
    tables.initialize();
    const auto refused_by = [&](int rank, const std::string& why, std::vector<TableBatch> theirs) {
      const std::string text = message_of([&] { tables.look_up(group.rank() == rank ? theirs : batches); });
      const std::string expected =
          group.rank() == rank
              ? why
              : fmt::format("ShardedTables::look_up: rank {} has refused its part of the call; its error says why",
                            rank);
      EXPECT_NE(text.find(expected), std::string::npos) << text;
    };
    std::vector<TableBatch> bad = batches;
    bad[0].indices = clone(bad[0].indices);
    bad[0].indices.data<int64_t>()[0] = -3;
    refused_by(1, "1 of the indices is out of range; the first is -3 of feature 0, bag", bad);
    bad = batches;
    bad[0].offsets = Tensor::of<int64_t>({0, 1, 2});
    refused_by(0, "3 offsets for 4 features with B bags each; expected 4 * B + 1, such as 1 or 5", bad);
    refused_by(2, "1 batches in training mode; expected one for each of the", {batches[0]});
    bad = batches;
    bad[0].features = {0};
    refused_by(2, "batch 0 names the tables of 1 features", bad);
    bad = batches;
    bad[1].per_sample_weights = facets::sample_tensor(1, bad[1].indices.extents());
    refused_by(0, "batch 1 has per_sample_weights, and batch 0 has none", bad);
    requires_grad_(bad[1].per_sample_weights);
    refused_by(1, "the per_sample_weights of batch 1 want a gradient", bad);
    EXPECT_NE(message_of([&] { tables.step(); }).find("backward() reached no lookup of rank"), std::string::npos);
    EXPECT_EQ(message_of([&] { tables.look_up(); }),
              "ShardedTables::look_up: no indices were sent; call send_indices() before, or give the batches");
    const std::vector<Tensor> y = tables.look_up(batches);
    EXPECT_NE(message_of([&] { tables.look_up(batches); }).find("there were lookups since the last step"),
              std::string::npos);
    // One rank has had no backward(): no rank steps.
    if (group.rank() != 1) backward(loss_of(y[0]));
    const std::string text = message_of([&] { tables.step(); });
    EXPECT_NE(text.find(group.rank() == 1 ? "backward() reached no lookup of rank 1 since the last step"
                                          : "rank 1 has refused its part of the call"),
              std::string::npos)
        << text;
    tables.abandon_step();
    train(tables, false, 1, kSteps);
    expect_same_state(tables.gathered(), one.state);
  });
}

TEST(ShardedTables, OtherArgumentsOnARankAreAnErrorOnAll) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    const EmbeddingPlan plan =
        plan_of(configs(), options, 2, {group.rank() == 0 ? row_wise : table_wise, data_parallel});
    const std::string text = message_of([&] { const ShardedTables tables(configs(), options, plan, kCount, &group); });
    EXPECT_NE(text.find("ranks 0 and 1 have other arguments"), std::string::npos) << text;
    // Another lr is noticed by the step.
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {data_parallel}), kCount, &group);
    tables.initialize();
    std::vector<TableBatch> batches;
    for (const int64_t s : tables.shards()) batches.push_back(batch_of(1, s, false));
    for (const Tensor& y : tables.look_up(batches)) backward(loss_of(y));
    if (group.rank() == 1) tables.set_lr(0.2);
    EXPECT_NE(message_of([&] { tables.step(); }), "no error");
    EXPECT_EQ(tables.steps_taken(), 0);
  });
}

TEST(ShardedTables, RefusesPlansAndOptionsThatDoNotFit) {
  nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const auto refused = [&](const EmbeddingPlan& plan, int64_t shards = 4) {
    return message_of([&] { const ShardedTables tables(configs(), options, plan, shards, nullptr); });
  };
  const EmbeddingPlan plan = plan_of(configs(), options, 1, {table_wise});
  EXPECT_EQ(refused(plan), "no error");
  EmbeddingPlan less = plan;
  less.tables.pop_back();
  EXPECT_EQ(refused(less), "ShardedTables: the plan has 2 tables; there are 3");
  for (const auto& change : std::initializer_list<std::function<void(TablePlan&)>>{
           [](TablePlan& t) { t.parts.clear(); }, [](TablePlan& t) { t.parts[0].rank = 1; },
           [](TablePlan& t) { t.parts[0].row_end = 6; }, [](TablePlan& t) { t.parts[0].column_begin = 1; },
           [](TablePlan& t) { t.parts.push_back(t.parts[0]); },
           [](TablePlan& t) {
             t.placement = row_wise;
             t.parts[0].row_begin = 1;
           }}) {
    EmbeddingPlan other = plan;
    change(other.tables[1]);
    EXPECT_NE(refused(other).find("parts of table 'item' are not a "), std::string::npos) << refused(other);
  }
  EXPECT_EQ(refused(plan, 6), "ShardedTables: 6 virtual shards; expected a power of two");
  // Norms of rows are no sums over slices of columns.
  options.optimizer->max_norm = 1;
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    EXPECT_EQ(message_of([&] {
                const ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {column_wise}), 4,
                                           &group);
              }),
              "ShardedTables: max_norm is 1, the norm of whole rows, and the plan divides the columns of table 'user'; "
              "plan without column_wise");
  });
  options.optimizer = std::nullopt;
  EXPECT_NE(refused(plan).find("the options have no optimizer"), std::string::npos);
}

TEST(ShardedTables, LoadRefusesStatesThatDoNotFitAndChangesNothing) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  seed_all(4);
  ShardedTables tables(configs(), options, plan_of(configs(), options, 1, {table_wise}), kCount, nullptr);
  tables.initialize();
  train(tables, false, 1, 1);
  const nn::StateDict state = tables.gathered();
  const auto refused = [&](auto change) {
    nn::StateDict other = state;
    change(other);
    return message_of([&] { tables.load(other); });
  };
  EXPECT_EQ(refused([](auto& s) { s.erase(s.begin()); }),
            "ShardedTables::load: there is no user.weight among the 6 tensors");
  EXPECT_EQ(refused([](auto& s) { s.emplace_back("more", s[0].second); }),
            "ShardedTables::load: there are 8 tensors; the tables have 7");
  EXPECT_NE(refused([](auto& s) { s[1].second = s[0].second; }).find("item.weight is"), std::string::npos);
  EXPECT_NE(refused([](auto& s) { s.back().second = Tensor::of<int64_t>({-1}, {}); }).find("state.iter is"),
            std::string::npos);
  expect_same_state(tables.gathered(), state);
  // Weights alone begin anew.
  nn::StateDict weights(state.begin(), state.begin() + 3);
  tables.load(weights);
  EXPECT_EQ(tables.steps_taken(), 0);
  const nn::StateDict begun = tables.gathered();
  EXPECT_EQ(sum(begun[3].second).item(), 0);
}

}  // namespace
}  // namespace tutti::parallel
