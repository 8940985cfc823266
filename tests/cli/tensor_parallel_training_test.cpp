// Training with a model that ranks divide (tensor parallelism): the losses, gradient norms, checkpoints and samples of
// one rank, resumed across layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/support/layout_runs.h"

namespace tutti::test {
namespace {

struct Divided : LayoutRuns {
  Divided() : LayoutRuns(4, "--model.flavor=tiny-tp4 --numerics.token_grain=16") {}
};

struct Layout {
  const char *name, *flags, *shared = "";  // flags that the run of one rank has, too
};

struct DividedLayout : Divided, testing::WithParamInterface<Layout> {};

TEST_P(DividedLayout, HasTheRunOfOneRank) {
  ASSERT_EQ(train("one", GetParam().shared).status, 0) << work.read("err.txt");
  ASSERT_EQ(train("many", GetParam().flags + std::string(" ") + GetParam().shared).status, 0) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find("tp "), std::string::npos) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find(" + parameters "), std::string::npos)
      << work.read("err.txt");  // of the peak memory
  expect_equal_runs("one", "many");
}

constexpr Layout kLayouts[] = {
    {"Tp2", "-n 2 --parallelism.tensor_parallel_degree=2"},
    {"Tp4", "-n 4 --parallelism.tensor_parallel_degree=4"},
    {"Tp2WithoutSequence", "-n 2 --parallelism.tensor_parallel_degree=2 --parallelism.enable_sequence_parallel=false"},
    {"Dp2Tp2", "-n 4 --parallelism.tensor_parallel_degree=2"},
    {"Dp3Tp2", "-n 6 --parallelism.tensor_parallel_degree=2"},
    {"Dp2Tp2EveryRound",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_schedule=every_round"},
    {"Dp2Tp2Overlapped",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_overlap=backward "
     "--runtime.progress_thread=true"},
    {"Dp2Tp2Gloo", "-n 4 --parallelism.tensor_parallel_degree=2 --runtime.transport=gloo"},
    {"Tp4Threads", "-n 4 --parallelism.tensor_parallel_degree=4 --runtime.transport=threads"},
    {"Tp2Recomputed",
     "-n 2 --parallelism.tensor_parallel_degree=2 --activation_checkpoint.mode=full --training.loss_max_bytes=1048576"},
    {"Tp2Bf16", "-n 2 --parallelism.tensor_parallel_degree=2", "--training.mixed_precision_param=bfloat16"},
    {"Tp4Dropout", "-n 4 --parallelism.tensor_parallel_degree=4", "--model.dropout=0.1"},
    {"Fsdp2Tp2", "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2"},
    {"Fsdp3Tp2", "-n 6 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=3"},
    {"Fsdp2Tp4", "-n 8 --parallelism.tensor_parallel_degree=4 --parallelism.data_parallel_shard_degree=2"},
    {"Hsdp2x2Tp2",
     "-n 8 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_replicate_degree=2 "
     "--parallelism.data_parallel_shard_degree=2"},
    {"Hsdp2x2Tp2OptimizerOverAll",
     "-n 8 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_replicate_degree=2 "
     "--parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim"},
    {"Hsdp2x2Tp2GlooOptimizerOverAll",
     "-n 8 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_replicate_degree=2 "
     "--parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim "
     "--runtime.transport=gloo"},
    {"Fsdp2Tp2EveryRound",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 "
     "--parallelism.data_parallel_schedule=every_round"},
    {"Fsdp2Tp2Overlapped",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 "
     "--parallelism.data_parallel_overlap=backward --runtime.progress_thread=true"},
    {"Fsdp2Tp2Gloo",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 --runtime.transport=gloo"},
    {"Fsdp3Tp2GlooEveryRound",
     "-n 6 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=3 "
     "--parallelism.data_parallel_schedule=every_round --runtime.transport=gloo"},
    {"Fsdp2Tp2Threads",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 "
     "--runtime.transport=threads"},
    {"Fsdp2Tp2RecomputedGloo",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 "
     "--activation_checkpoint.mode=full --runtime.transport=gloo"},
    {"Fsdp2Tp2Bf16Dropout", "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2",
     "--training.mixed_precision_param=bfloat16 --model.dropout=0.1"},
    {"Fsdp2Tp2SavedInBackground",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 --checkpoint.async=true "
     "--checkpoint.every=1 --checkpoint.keep_latest=2"},
    {"Tp2Compiled", "-n 2 --parallelism.tensor_parallel_degree=2 --training.compile=true"},
    {"Tp4CompiledBf16Dropout", "-n 4 --parallelism.tensor_parallel_degree=4 --training.compile=true",
     "--training.mixed_precision_param=bfloat16 --model.dropout=0.1"},
    {"Dp3Tp2CompiledRecomputed",
     "-n 6 --parallelism.tensor_parallel_degree=2 --training.compile=true --activation_checkpoint.mode=full"},
    {"Fsdp2Tp2Compiled",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 --training.compile=true"},
    {"Fsdp2Tp2CompiledOverlapped",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 --training.compile=true "
     "--parallelism.data_parallel_overlap=backward"},
    {"Fsdp2Tp2CompiledGloo",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 --training.compile=true "
     "--runtime.transport=gloo"},
    {"Tp2CompiledThreads",
     "-n 2 --parallelism.tensor_parallel_degree=2 --training.compile=true --runtime.transport=threads"},
    {"Tp2Async",
     "-n 2 --parallelism.tensor_parallel_degree=2 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true"},
    {"Tp4AsyncBf16Dropout",
     "-n 4 --parallelism.tensor_parallel_degree=4 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true",
     "--training.mixed_precision_param=bfloat16 --model.dropout=0.1"},
    {"Tp2AsyncWithoutSequence",
     "-n 2 --parallelism.tensor_parallel_degree=2 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true --parallelism.enable_sequence_parallel=false"},
    {"Tp4AsyncGloo",
     "-n 4 --parallelism.tensor_parallel_degree=4 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true --runtime.transport=gloo"},
    {"Tp2AsyncThreads",
     "-n 2 --parallelism.tensor_parallel_degree=2 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true --runtime.transport=threads"},
    {"Fsdp2Tp2AsyncRecomputed",
     "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true "
     "--activation_checkpoint.mode=full"},
    {"Dp3Tp2Async",
     "-n 6 --parallelism.tensor_parallel_degree=2 --training.compile=true "
     "--parallelism.enable_async_tensor_parallel=true"},
    {"Tp2SavedInBackground",
     "-n 2 --parallelism.tensor_parallel_degree=2 --checkpoint.async=true --checkpoint.every=1 "
     "--checkpoint.keep_latest=2"},
};

INSTANTIATE_TEST_SUITE_P(On, DividedLayout, testing::ValuesIn(kLayouts),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(Divided, GoesOnInAnyOtherLayout) {
  ASSERT_EQ(train("whole", "").status, 0) << work.read("err.txt");
  const std::pair<const char*, const char*> rows[] = {
      {"-n 4 --parallelism.tensor_parallel_degree=4", "-n 1"},
      {"-n 3 --parallelism.data_parallel_shard_degree=3", "-n 2 --parallelism.tensor_parallel_degree=2"},
      {"-n 4 --parallelism.tensor_parallel_degree=2", "-n 4 --parallelism.data_parallel_shard_degree=4"},
      {"-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=2",
       "-n 3 --parallelism.data_parallel_shard_degree=3"},
      {"-n 2 --parallelism.data_parallel_shard_degree=2",
       "-n 6 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_shard_degree=3"},
  };
  for (size_t i = 0; i < std::size(rows); ++i) {
    const std::string name = fmt::format("resumed_{}", i);
    ASSERT_EQ(train(name, std::string(rows[i].first) + " --stop-at 2").status, 0) << work.read("err.txt");
    ASSERT_EQ(train(name, rows[i].second).status, 0) << work.read("err.txt");
    expect_equal_runs("whole", name);
  }
}

TEST_F(Divided, RefusesDegreesThatDoNotFit) {
  const Output ranks = train("never", "-n 3 --parallelism.tensor_parallel_degree=2");
  EXPECT_EQ(ranks.status, 2);
  EXPECT_NE(ranks.err.find("parallelism.tensor_parallel_degree = 2 does not divide 3 ranks"), std::string::npos)
      << ranks.err;
  const Output heads = train("never", "-n 8 --parallelism.tensor_parallel_degree=8");
  EXPECT_EQ(heads.status, 2);
  EXPECT_NE(heads.err.find("expected a power of two up to 4"), std::string::npos) << heads.err;
}

}  // namespace
}  // namespace tutti::test
