// Training with divided parameters: the losses, gradient norms and checkpoints of one rank in every layout, resumed
// across layouts, saved in the background or not.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/support/layout_runs.h"

namespace tutti::test {
namespace {

struct Sharded : LayoutRuns {
  Sharded() : LayoutRuns(6, "--model.flavor=tiny") {}
};

struct Layout {
  const char *name, *flags;
};

struct ShardedLayout : Sharded, testing::WithParamInterface<Layout> {};

TEST_P(ShardedLayout, HasTheRunOfOneRank) {
  ASSERT_EQ(train("one", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("many", GetParam().flags).status, 0) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find("dp_shard "), std::string::npos) << work.read("err.txt");
  expect_equal_runs("one", "many");
}

constexpr Layout kLayouts[] = {
    {"Fsdp2", "-n 2 --parallelism.data_parallel_shard_degree=2"},
    {"Fsdp3", "-n 3 --parallelism.data_parallel_shard_degree=3"},
    {"Fsdp6EveryRound",
     "-n 6 --parallelism.data_parallel_shard_degree=6 --parallelism.data_parallel_schedule=every_round"},
    {"Hsdp2x2", "-n 4 --parallelism.data_parallel_shard_degree=2"},
    {"Hsdp2x3Compiled",
     "-n 6 --parallelism.data_parallel_replicate_degree=2 --parallelism.data_parallel_shard_degree=-1 "
     "--training.compile=true"},
    {"Hsdp2x2OptimizerOverAll",
     "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim"},
    {"Hsdp3x2GlooOptimizerOverAll",
     "-n 6 --parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim "
     "--runtime.transport=gloo --activation_checkpoint.mode=full"},
    {"Fsdp3Compiled", "-n 3 --parallelism.data_parallel_shard_degree=3 --training.compile=true"},
    {"Fsdp4Overlapped",
     "-n 4 --parallelism.data_parallel_shard_degree=4 --parallelism.data_parallel_overlap=backward "
     "--runtime.progress_thread=true"},
    {"Fsdp2Threads", "-n 2 --parallelism.data_parallel_shard_degree=2 --runtime.transport=threads"},
    {"Fsdp3Gloo", "-n 3 --parallelism.data_parallel_shard_degree=3 --runtime.transport=gloo"},
    {"Fsdp5GlooRecomputed",
     "-n 5 --parallelism.data_parallel_shard_degree=5 --runtime.transport=gloo --activation_checkpoint.mode=full"},
    {"Fsdp2GlooKept",
     "-n 2 --parallelism.data_parallel_shard_degree=2 --runtime.transport=gloo "
     "--parallelism.fsdp_reshard_after_forward=never"},
    {"Fsdp2GlooAlways",
     "-n 2 --parallelism.data_parallel_shard_degree=2 --runtime.transport=gloo "
     "--parallelism.fsdp_reshard_after_forward=always"},
    {"Fsdp4GlooKeptByTwo",
     "-n 4 --parallelism.data_parallel_shard_degree=4 --runtime.transport=gloo "
     "--parallelism.fsdp_reshard_after_forward=2"},
    {"Fsdp3GlooCompiled",
     "-n 3 --parallelism.data_parallel_shard_degree=3 --runtime.transport=gloo --training.compile=true"},
    {"Fsdp4GlooCompiledKeptByTwo",
     "-n 4 --parallelism.data_parallel_shard_degree=4 --runtime.transport=gloo --training.compile=true "
     "--parallelism.fsdp_reshard_after_forward=2"},
    {"Fsdp5GlooCompiledRecomputed",
     "-n 5 --parallelism.data_parallel_shard_degree=5 --runtime.transport=gloo --training.compile=true "
     "--activation_checkpoint.mode=full --parallelism.fsdp_reshard_after_forward=always"},
    {"Fsdp3SavedInBackground",
     "-n 3 --parallelism.data_parallel_shard_degree=3 --checkpoint.async=true --checkpoint.every=1 "
     "--checkpoint.keep_latest=2"},
};

INSTANTIATE_TEST_SUITE_P(On, ShardedLayout, testing::ValuesIn(kLayouts),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(Sharded, Bf16HasTheRunOfOneRank) {
  const std::string bf16 = " --training.mixed_precision_param=bfloat16";
  ASSERT_EQ(train("one", bf16).status, 0) << work.read("err.txt");
  for (const auto& [name, flags] :
       {std::pair("shm", "-n 3 --parallelism.data_parallel_shard_degree=3"),
        std::pair("gloo", "-n 2 --parallelism.data_parallel_shard_degree=2 --runtime.transport=gloo")}) {
    ASSERT_EQ(train(name, flags + bf16).status, 0) << work.read("err.txt");
    expect_equal_runs("one", name);
  }
}

TEST_F(Sharded, ItsReportShowsTheMemoryAndAStepOfEachRank) {
  ASSERT_EQ(train("run", "-n 3 --parallelism.data_parallel_shard_degree=3").status, 0) << work.read("err.txt");
  const std::string html = work.read("runs/run/report.html");
  EXPECT_NE(html.find("<h2>Memory of the ranks</h2>"), std::string::npos);
  EXPECT_NE(html.find("measured: optimizer"), std::string::npos);
  EXPECT_NE(html.find("<h2>Timeline of step 2</h2>"), std::string::npos);
  for (const char* text :
       {"rank 2: forward and backward,", "rank 2: reduction of gradients,", "rank 1: optimizer,", "rank 2: unshard,"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
}

// Gradients begin to move at another time on each rank, while parameters are gathered for the rest of the backward.
TEST_F(Sharded, GathersAndGradientsTravelAtOnce) {
  const std::string several_buckets = " --model.flavor=quickstart";
  ASSERT_EQ(train("one", several_buckets).status, 0) << work.read("err.txt");
  ASSERT_EQ(train("many",
                  "-n 4 --parallelism.data_parallel_shard_degree=4 --runtime.transport=gloo "
                  "--parallelism.data_parallel_overlap=backward --runtime.progress_thread=true" +
                      several_buckets)
                .status,
            0)
      << work.read("err.txt");
  expect_equal_runs("one", "many");
}

TEST_F(Sharded, GoesOnInAnyOtherLayout) {
  ASSERT_EQ(train("whole", "").status, 0) << work.read("err.txt");
  const std::pair<const char*, const char*> rows[] = {
      {"-n 4 --parallelism.data_parallel_shard_degree=4", "-n 1"},
      {"-n 1", "-n 3 --parallelism.data_parallel_shard_degree=3 --runtime.transport=gloo"},
      {"-n 2", "-n 4 --parallelism.data_parallel_shard_degree=2"},
      {"-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim "
       "--runtime.transport=gloo",
       "-n 3 --parallelism.data_parallel_shard_degree=3"},
      {"-n 2 --parallelism.data_parallel_shard_degree=2",
       "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim "
       "--runtime.transport=gloo --checkpoint.async=true"},
      {"-n 3 --parallelism.data_parallel_shard_degree=3 --checkpoint.async=true",
       "-n 5 --parallelism.data_parallel_shard_degree=5 --training.compile=true"},
  };
  for (size_t i = 0; i < std::size(rows); ++i) {
    const std::string name = fmt::format("resumed_{}", i);
    ASSERT_EQ(train(name, std::string(rows[i].first) + " --stop-at 3").status, 0) << work.read("err.txt");
    ASSERT_EQ(train(name, rows[i].second).status, 0) << work.read("err.txt");
    expect_equal_runs("whole", name);
  }
}

TEST_F(Sharded, SamplesAndErrorsAreThoseOfAnyRun) {
  ASSERT_EQ(train("one", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("gloo", "-n 2 --parallelism.data_parallel_shard_degree=2 --runtime.transport=gloo").status, 0)
      << work.read("err.txt");
  EXPECT_EQ(work.read("runs/one/sample.txt"), work.read("runs/gloo/sample.txt"));
  const Output refused = train("never", "-n 3 --parallelism.data_parallel_shard_degree=2");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("do not fit 3 ranks: expected one of 1, 3"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace tutti::test
