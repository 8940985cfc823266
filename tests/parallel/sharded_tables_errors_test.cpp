// Tables that ranks divide: wrong arguments are errors on all ranks, which can go on.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>

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
    std::vector<TableBatch> batches = batches_of(tables, 1);
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
    for (TableBatch& batch : bad) batch.per_sample_weights = facets::sample_tensor(1, batch.indices.extents());
    requires_grad_(bad[1].per_sample_weights);
    refused_by(1, "the per_sample_weights of batch 1 want a gradient, and those of batch 0 do not", bad);
    EXPECT_NE(message_of([&] { tables.step(); }).find("there was no lookup since the last step on rank"),
              std::string::npos);
    EXPECT_EQ(message_of([&] { tables.look_up(); }),
              "ShardedTables::look_up: no indices were sent; call send_indices() before, or give the batches");
    tables.look_up(batches);
    EXPECT_NE(message_of([&] { tables.look_up(batches); }).find("there were lookups since the last step"),
              std::string::npos);
    EXPECT_NE(message_of([&] { tables.step(); }).find("backward() reached no lookup of any rank"), std::string::npos);
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
    EXPECT_NE(
        text.find(fmt::format("ShardedTables: rank {} has 'table 'user' of 41 rows and 64 columns", group.rank())),
        std::string::npos)
        << text;
    EXPECT_NE(text.find("table_wise: rank 0 rows 0-41 columns 0-64'"), std::string::npos) << text;
    // Another lr is noticed by the step.
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {data_parallel}), kCount, &group);
    tables.initialize();
    std::vector<TableBatch> batches = batches_of(tables, 1);
    for (const Tensor& y : tables.look_up(batches)) backward(loss_of(y));
    if (group.rank() == 1) tables.set_lr(0.2);
    EXPECT_NE(message_of([&] { tables.step(); }).find("lr is 0."), std::string::npos);
    EXPECT_EQ(tables.steps_taken(), 0);
    tables.set_lr(0.1);
    if (group.rank() == 1) seed_all(5);
    EXPECT_NE(message_of([&] { tables.step(); }).find("the key of the seed is"), std::string::npos);
    seed_all(4);
    tables.step();
    // Other modes, values, results and first values.
    if (group.rank() == 0) tables.eval();
    const std::string modes = message_of([&] { tables.look_up(batches); });
    EXPECT_NE(modes.find("ShardedTables::look_up: whether lookups are of a step is"), std::string::npos) << modes;
    tables.train();
    if (group.rank() == 0) tables.initialize();
    EXPECT_NE(message_of([&] { tables.look_up(batches); }), "no error");
    const auto refused = [&](const nn::TableBatchedOptions& its, const std::vector<nn::TableConfig>& configs_of_it) {
      return message_of([&] {
        const ShardedTables other(configs_of_it, its, plan_of(configs(), options, 2, {data_parallel}), kCount, &group);
      });
    };
    nn::TableBatchedOptions half = options;
    if (group.rank() == 1) half.batch.output = TableOutput::bf16;
    EXPECT_NE(refused(half, configs()).find("results 2"), std::string::npos);
    std::vector<nn::TableConfig> filled = configs();
    if (group.rank() == 1) filled[1].init = nn::Init::zeros();
    EXPECT_NE(refused(options, filled).find("table 'item' of 7 rows and 33 columns, first values 0"),
              std::string::npos);
  });
}

TEST(ShardedTables, ArgumentsThatOneRankRefusesAreAnErrorOnAll) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  comm::run_ranks(3, [&](comm::ProcessGroup& group) {
    const bool is_wrong = group.rank() == 1;
    const auto refused = [&](nn::TableBatchedOptions its, EmbeddingPlan plan, int64_t shards, const std::string& why) {
      const std::string text = message_of([&] { const ShardedTables tables(configs(), its, plan, shards, &group); });
      const std::string expected =
          is_wrong ? why : "ShardedTables: rank 1 has refused its arguments; its error says why";
      EXPECT_NE(text.find(expected), std::string::npos) << text;
    };
    const EmbeddingPlan plan = plan_of(configs(), options, 3, {row_wise});
    nn::TableBatchedOptions without = options, negative = options;
    if (is_wrong) without.optimizer = std::nullopt;
    refused(without, plan, kCount, "the options have no optimizer");
    if (is_wrong) negative.optimizer->lr = -1;
    refused(negative, plan, kCount, "lr is -1");
    refused(options, plan, is_wrong ? 6 : 8, "6 virtual shards");
    EmbeddingPlan other = plan;
    if (is_wrong) other.tables.pop_back();
    refused(options, other, kCount, "the plan has 2 tables; there are 3");
    const ShardedTables right(configs(), options, plan, kCount, &group);  // the ranks go on
  });
}

TEST(ShardedTables, WeightsOfSomeRanksAloneAreRefusedByAll) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  for (const TablePlacement placement : {table_wise, row_wise, data_parallel}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {placement}), kCount, &group);
      tables.initialize();
      std::vector<TableBatch> batches;
      for (const int64_t s : tables.shards()) batches.push_back(batch_of(1, s, group.rank() == 1));
      EXPECT_NE(message_of([&] {
                  tables.look_up(batches);
                }).find("whether batches have per_sample_weights (1), which want gradients (2), is"),
                std::string::npos);
    });
  }
}

TEST(ShardedTables, WeightsThatWantGradientsOnSomeRanksAloneAreRefusedByAll) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, true);
  for (const TablePlacement placement : {table_wise, column_wise, row_wise, data_parallel}) {
    comm::run_ranks(2, [&](comm::ProcessGroup& group) {
      seed_all(4);
      ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {placement}), kCount, &group);
      tables.initialize();
      std::vector<TableBatch> batches = batches_of(tables, 1, true);
      for (TableBatch& batch : batches)
        if (group.rank() == 1) requires_grad_(batch.per_sample_weights);
      EXPECT_NE(message_of([&] { tables.look_up(batches); }).find("which want gradients (2), is"), std::string::npos);
      train(tables, true, 1, kSteps);
      expect_same_state(tables.gathered(), one.state);
    });
  }
}

TEST(ShardedTables, IndicesThatWereSentAreTakenOrAbandoned) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {row_wise, table_wise}), kCount, &group);
    tables.initialize();
    const auto batches = [&](int64_t step) { return batches_of(tables, step); };
    tables.look_up(batches(1));
    tables.send_indices(batches(2));
    tables.abandon_step();  // of a step that has failed
    const std::vector<Tensor> y = tables.look_up(batches(1));
    tables.send_indices(batches(2));
    EXPECT_NE(message_of([&] { tables.look_up(); }).find("there were lookups since the last step"), std::string::npos);
    for (const Tensor& values : y) backward(loss_of(values));
    tables.step();
    for (const Tensor& values : tables.look_up()) backward(loss_of(values));  // those of before
    tables.step();
    train(tables, false, 3, kSteps);
    expect_same_state(tables.gathered(), one.state);
  });
}

// A rank that ends in the middle: the others learn it and do not wait for their deadline.
TEST(ShardedTables, ARankThatEndsIsNamed) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  for (const char* transport : {"shm", "gloo"}) {
    for (const int at : {0, 1, 2}) {
      std::atomic<int> told = 0;
      EXPECT_THROW(comm::run_ranks(3,
                                   [&](comm::ProcessGroup& group) {
                                     const auto maybe_end = [&](int place) {
                                       if (group.rank() == 1 && place == at) throw std::runtime_error("this rank ends");
                                     };
                                     // A rank that is late hears of the end while it makes its tables.
                                     try {
                                       ShardedTables tables(configs(), options,
                                                            plan_of(configs(), options, 3, {row_wise}), kCount, &group);
                                       tables.initialize();
                                       std::vector<TableBatch> batches = batches_of(tables, 1);
                                       maybe_end(0);
                                       tables.send_indices(batches);
                                       maybe_end(1);
                                       for (const Tensor& y : tables.look_up()) backward(loss_of(y));
                                       maybe_end(2);
                                       tables.step();
                                     } catch (const EnvironmentError&) {
                                       ++told;
                                       throw;
                                     }
                                   },
                                   {.transport = transport, .timeout = std::chrono::minutes(2)}),
                   std::runtime_error)
          << transport << " " << at;
      EXPECT_EQ(told, 2) << transport << " " << at;
    }
  }
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
  EXPECT_EQ(refused(plan, 6), "ShardedTables: 6 virtual shards; expected a power of two up to 65536");
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

TEST(ShardedTables, NamesOfTablesMayLookLikeStates) {
  const std::vector<nn::TableConfig> tables = {{"state", 9, 4}, {"state.user", 5, 4}};
  const nn::TableBatchedOptions options{.optimizer = TableStep{.lr = 0.1}};
  ShardedTables first(tables, options, plan_of(tables, options, 1, {table_wise}), 1, nullptr);
  EXPECT_NE(message_of([&] { first.gathered(); }).find("the tables have no values yet"), std::string::npos);
  first.initialize();
  const nn::StateDict all = first.gathered();
  ShardedTables second(tables, options, plan_of(tables, options, 1, {table_wise}), 1, nullptr);
  second.load({all.begin(), all.begin() + 2});
  expect_same_state(second.gathered(), all);
  for (const TensorBox& box : second.boxes()) EXPECT_EQ(box.is_state, box.name.ends_with(".h")) << box.name;
}

}  // namespace
}  // namespace tutti::parallel
