// Compiled functions beside tables that ranks divide: they take what was looked up, and neither look up nor step.
#include <gtest/gtest.h>

#include "tests/parallel/support/shared_lookups.h"
#include "tests/support/message_of.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/graph/compile.h"

namespace tutti::parallel {
namespace {

TEST(ShardedTablesCompiled, ResultsOfLookupsAreArgumentsOfCompiledFunctions) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {column_wise, row_wise}), kCount, &group);
    tables.initialize();
    const auto compiled = compile([](const Tensor& values) { return loss_of(values); });
    for (int64_t step = 1; step <= kSteps; ++step) {
      for (const Tensor& values : tables.look_up(batches_of(tables, step))) backward(compiled(values));
      tables.step();
    }
    expect_same_state(tables.gathered(), one.state);
  });
}

TEST(ShardedTablesCompiled, LookupsAndStepsAreRefusedOnAllRanksThatCanGoOn) {
  const nn::TableBatchedOptions options = options_of({.lr = 0.1}, DType::f32, TablePooling::sum);
  const Trained one = on_one_rank(options, false);
  comm::run_ranks(2, [&](comm::ProcessGroup& group) {
    seed_all(4);
    ShardedTables tables(configs(), options, plan_of(configs(), options, 2, {table_wise}), kCount, &group);
    tables.initialize();
    const auto looks_up = compile([&](const Tensor& indices) {
      std::vector<TableBatch> batches = batches_of(tables, 1);
      batches[0].indices = indices;
      return tables.look_up(batches)[0];
    });
    const std::string text = message_of([&] { looks_up(batches_of(tables, 1)[0].indices); });
    EXPECT_NE(text.find("ShardedTables: a compiled function would look up the batches of its trace in every call; call "
                        "look_up() outside of compile(), and give its results to the compiled function"),
              std::string::npos)
        << text;
    const auto steps = compile([&](const Tensor& x) {
      tables.step();
      return mul(x, x);
    });
    EXPECT_NE(message_of([&] { steps(Tensor::of<float>({1})); }).find("a compiled function cannot step tables"),
              std::string::npos);
    train(tables, false, 1, kSteps);
    expect_same_state(tables.gathered(), one.state);
  });
}

}  // namespace
}  // namespace tutti::parallel
