// training.compile as a user runs it: the numbers of an eager run, and what happens when kernels cannot be made or
// kept.
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

struct CompiledTraining : testing::Test {
  CompiledTraining() { work.write("corpus.jsonl", synthetic_corpus(20, 400)); }
  Output train(const std::string& name, const std::string& more, const std::string& shell = "") {
    return work.tutti(
        "train " TUTTI_SOURCE_DIR
        "/configs/quickstart.toml --quiet --data corpus.jsonl --data.tokenizer=bpe:300 --training.steps=6 "
        "--training.global_batch_tokens=512 --data.sequence_length=64 --data.validation_fraction=0.05 "
        "--lr_scheduler.warmup_steps=2 "
        "--validation.every=0 --validation.sample_tokens=0 --run.name=" +
            name + " " + more,
        shell);
  }
  void expect_equal_runs(const std::string& a, const std::string& b) {
    for (const char* key : {"loss_hex", "grad_norm_hex"})
      EXPECT_EQ(work.metric(a, key), work.metric(b, key)) << b << " " << key;
    EXPECT_EQ(work.digest(a), work.digest(b)) << b;
  }
  Workplace work;
};

TEST_F(CompiledTraining, HasTheBitsOfEagerOnAnyRanks) {
  ASSERT_EQ(train("eager", "").status, 0) << work.read("err.txt");
  for (const char* ranks : {"1", "2", "4"}) {
    const std::string name = std::string("compiled_") + ranks;
    ASSERT_EQ(train(name, std::string("--training.compile=true -n ") + ranks).status, 0) << work.read("err.txt");
    expect_equal_runs("eager", name);
  }
}

TEST_F(CompiledTraining, HasTheBitsOfEagerWhenBlocksAreRecomputedInBf16) {
  const std::string flags = "--activation_checkpoint.mode=full --training.mixed_precision_param=bfloat16 ";
  ASSERT_EQ(train("eager", flags).status, 0) << work.read("err.txt");
  ASSERT_EQ(train("compiled", flags + "--training.compile=true").status, 0) << work.read("err.txt");
  expect_equal_runs("eager", "compiled");
}

TEST_F(CompiledTraining, WorksWithoutKeepingKernelsOnDisk) {
  ASSERT_EQ(train("eager", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("compiled", "--training.compile=true", "TUTTI_CACHE_LIMIT_MB=0").status, 0) << work.read("err.txt");
  expect_equal_runs("eager", "compiled");
}

TEST_F(CompiledTraining, SaysWhatIsMissingWhenKernelsCannotBeMade) {
  const Output out =
      train("broken", "--training.compile=true", "TUTTI_CACHE_LIMIT_MB=0 TUTTI_LLVM_PLUGIN=/nowhere/libtutti_llvm.so");
  EXPECT_EQ(out.status, 1);
  EXPECT_NE(work.read("err.txt").find("/nowhere/libtutti_llvm.so"), std::string::npos) << work.read("err.txt");
}

}  // namespace
}  // namespace tutti::test
