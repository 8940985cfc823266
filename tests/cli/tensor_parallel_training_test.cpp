// Training with a model that ranks divide (tensor parallelism): the losses, gradient norms, checkpoints and samples of one rank, resumed across layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

struct Divided : testing::Test {
  Divided() { work.write("corpus.jsonl", synthetic_corpus(20, 200)); }
  Output train(const std::string& name, const std::string& more) {
    return work.tutti("train " TUTTI_SOURCE_DIR "/configs/quickstart.toml --data corpus.jsonl --data.tokenizer=byte --model.flavor=tiny-tp4 --training.steps=4 "
                      "--training.global_batch_tokens=512 --data.sequence_length=32 --data.validation_fraction=0.05 --lr_scheduler.warmup_steps=2 --validation.every=2 "
                      "--validation.steps=1 --validation.sample_tokens=8 --numerics.token_grain=16 --run.name=" + name + " " + more);
  }
  void expect_equal_runs(const std::string& a, const std::string& b) {
    for (const char* key : {"loss_hex", "grad_norm_hex"}) EXPECT_EQ(work.metric(a, key), work.metric(b, key)) << b << " " << key;
    const auto validated = [&](const std::string& run) {
      const std::string lines = work.read("runs/" + run + "/metrics.jsonl"), key = "\"val_bits_per_byte\":";
      const size_t at = lines.rfind(key);
      return at == std::string::npos ? std::string() : lines.substr(at, lines.find_first_of(",}", at) - at);
    };
    EXPECT_NE(validated(a), "");
    EXPECT_EQ(validated(a), validated(b)) << b;
    EXPECT_EQ(work.digest(a), work.digest(b)) << b;
    EXPECT_EQ(work.read("runs/" + a + "/sample.txt"), work.read("runs/" + b + "/sample.txt")) << b;
    for (const char* file : {"model.safetensors", "optimizer.safetensors"})
      EXPECT_TRUE(work.read("runs/" + a + "/checkpoint/step-4/" + file) == work.read("runs/" + b + "/checkpoint/step-4/" + file)) << b << " " << file;
  }
  Workplace work;
};

struct Layout {
  const char *name, *flags, *shared = "";  // flags that the run of one rank has, too
};

struct DividedLayout : Divided, testing::WithParamInterface<Layout> {};

TEST_P(DividedLayout, HasTheRunOfOneRank) {
  ASSERT_EQ(train("one", GetParam().shared).status, 0) << work.read("err.txt");
  ASSERT_EQ(train("many", GetParam().flags + std::string(" ") + GetParam().shared).status, 0) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find("tp "), std::string::npos) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find(" + parameters "), std::string::npos) << work.read("err.txt");  // of the peak memory
  expect_equal_runs("one", "many");
}

constexpr Layout kLayouts[] = {
    {"Tp2", "-n 2 --parallelism.tensor_parallel_degree=2"},
    {"Tp4", "-n 4 --parallelism.tensor_parallel_degree=4"},
    {"Tp2WithoutSequence", "-n 2 --parallelism.tensor_parallel_degree=2 --parallelism.enable_sequence_parallel=false"},
    {"Dp2Tp2", "-n 4 --parallelism.tensor_parallel_degree=2"},
    {"Dp3Tp2", "-n 6 --parallelism.tensor_parallel_degree=2"},
    {"Dp2Tp2EveryRound", "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_schedule=every_round"},
    {"Dp2Tp2Overlapped", "-n 4 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_overlap=backward --runtime.progress_thread=true"},
    {"Dp2Tp2Gloo", "-n 4 --parallelism.tensor_parallel_degree=2 --runtime.transport=gloo"},
    {"Tp4Threads", "-n 4 --parallelism.tensor_parallel_degree=4 --runtime.transport=threads"},
    {"Tp2Recomputed", "-n 2 --parallelism.tensor_parallel_degree=2 --activation_checkpoint.mode=full --training.loss_max_bytes=1048576"},
    {"Tp2Bf16", "-n 2 --parallelism.tensor_parallel_degree=2", "--training.mixed_precision_param=bfloat16"},
    {"Tp4Dropout", "-n 4 --parallelism.tensor_parallel_degree=4", "--model.dropout=0.1"},
    {"Tp2SavedInBackground", "-n 2 --parallelism.tensor_parallel_degree=2 --checkpoint.async=true --checkpoint.every=1 --checkpoint.keep_latest=2"},
};

INSTANTIATE_TEST_SUITE_P(On, DividedLayout, testing::ValuesIn(kLayouts), [](const auto& param) { return std::string(param.param.name); });

TEST_F(Divided, GoesOnInAnyOtherLayout) {
  ASSERT_EQ(train("whole", "").status, 0) << work.read("err.txt");
  const std::pair<const char*, const char*> rows[] = {
      {"-n 4 --parallelism.tensor_parallel_degree=4", "-n 1"},
      {"-n 3 --parallelism.data_parallel_shard_degree=3", "-n 2 --parallelism.tensor_parallel_degree=2"},
      {"-n 4 --parallelism.tensor_parallel_degree=2", "-n 4 --parallelism.data_parallel_shard_degree=4"},
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
  EXPECT_NE(ranks.err.find("parallelism.tensor_parallel_degree = 2 does not divide 3 ranks"), std::string::npos) << ranks.err;
  const Output heads = train("never", "-n 8 --parallelism.tensor_parallel_degree=8");
  EXPECT_EQ(heads.status, 2);
  EXPECT_NE(heads.err.find("expected a power of two up to 4"), std::string::npos) << heads.err;
}

}  // namespace
}  // namespace tutti::test
