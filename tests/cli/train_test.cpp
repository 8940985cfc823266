// Training as a user runs it: the same numbers on any number of ranks and threads, interrupted or not.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <fstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

constexpr const char* kQuickstart = TUTTI_SOURCE_DIR
    "/configs/quickstart.toml --quiet --data corpus.jsonl --data.tokenizer=bpe:300 --training.steps=20 "
    "--training.global_batch_tokens=512 "
    "--data.sequence_length=64 --data.validation_fraction=0.05 --lr_scheduler.warmup_steps=5 --validation.every=10 "
    "--validation.steps=1 "
    "--validation.sample_tokens=8 --checkpoint.every=10 ";

struct Quickstart : testing::Test {
  Quickstart() { work.write("corpus.jsonl", synthetic_corpus(20, 400)); }
  Output train(const std::string& name, const std::string& more = "", const std::string& shell = "") {
    return work.tutti("train " + std::string(kQuickstart) + "--run.name=" + name + " " + more, shell);
  }
  struct Way {
    std::string name, flags, shell;
  };
  // Each way of running has the losses, gradient norms, weights and sample of one rank; `common` are flags of all.
  void expect_equal(const std::string& common, const std::vector<Way>& ways) {
    ASSERT_EQ(train("one", common).status, 0) << work.read("err.txt");
    for (const Way& way : ways) {
      ASSERT_EQ(train(way.name, way.flags + common, way.shell).status, 0) << work.read("err.txt");
      for (const char* key : {"loss_hex", "grad_norm_hex"})
        EXPECT_EQ(work.metric("one", key), work.metric(way.name, key)) << way.name << " " << key;
      EXPECT_EQ(work.digest("one"), work.digest(way.name)) << way.name;
      EXPECT_EQ(work.read("runs/one/sample.txt"), work.read("runs/" + way.name + "/sample.txt"));
    }
  }
  // Polls until a file exists or the process ended.
  bool wait_for(const std::filesystem::path& path) const {
    for (int i = 0; i < 6000 && !std::filesystem::exists(path); ++i) usleep(10'000);
    return std::filesystem::exists(path);
  }
  Workplace work;
};

std::vector<std::string> golden() {
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/quickstart.loss");
  std::vector<std::string> values;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') values.push_back(line);
  }
  return values;
}

TEST_F(Quickstart, AShortRunNeedsNoWarmup) {
  const std::string own = "--training.steps=21 --lr_scheduler.warmup_steps=";
  ASSERT_EQ(train("automatic", own + "-1").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("two", own + "2").status, 0) << work.read("err.txt");
  EXPECT_NE(work.read("runs/automatic/config.resolved.toml").find("warmup_steps = 2\n"), std::string::npos);
  EXPECT_EQ(work.metric("automatic", "loss_hex"), work.metric("two", "loss_hex"));
  // The run keeps its warm-up when it gets longer.
  ASSERT_EQ(train("automatic", "--training.steps=40 --lr_scheduler.warmup_steps=-1").status, 0) << work.read("err.txt");
  EXPECT_NE(work.read("runs/automatic/config.resolved.toml").find("warmup_steps = 2\n"), std::string::npos);
}

// A numeric change records the file anew, with the reason in the commit: TUTTI_RENEW_GOLDEN=1 ctest -R Quickstart.
TEST_F(Quickstart, LossesAreThoseOfTheGoldenFile) {
  ASSERT_EQ(train("golden").status, 0) << work.read("err.txt");
  const std::vector<std::string> losses = work.metric("golden", "loss_hex");
  if (getenv("TUTTI_RENEW_GOLDEN")) {
    std::ofstream file(TUTTI_SOURCE_DIR "/tests/golden/quickstart.loss");
    file << "# loss_hex of 20 steps of configs/quickstart.toml on a synthetic corpus, as tests/cli/train_test.cpp runs "
            "it. f32, x86-64.\n";
    for (const std::string& loss : losses) file << loss << "\n";
  }
  EXPECT_EQ(losses, golden());
}

TEST_F(Quickstart, NumbersAreEqualOnAnyRanksThreadsAndInstructionSet) {
  expect_equal("", {{"two", "-n 2", ""},
                    {"three", "-n 3", ""},
                    {"rank_threads", "-n 3 --runtime.transport=threads", ""},
                    {"four", "-n 4", ""},
                    {"threads", "", "TUTTI_THREADS=2"},
                    {"avx2", "", "TUTTI_CPU=avx2"},
                    {"recomputed", "--activation_checkpoint.mode=full", ""},
                    {"chunks", "--training.loss_max_bytes=200000", ""},
                    {"compiled_chunks", "--training.compile=true --training.loss_max_bytes=200000", ""}});
}

// Forward and backward compute in bf16; the gradients, the optimizer and its state stay f32.
TEST_F(Quickstart, NumbersInBf16AreEqualOnAnyRanksThreadsAndInstructionSet) {
  expect_equal(
      " --training.mixed_precision_param=bfloat16",
      {{"two", "-n 2", ""},
       {"three", "-n 3 --runtime.transport=threads", ""},
       {"threads", "", "TUTTI_THREADS=2"},
       {"avx2", "", "TUTTI_CPU=avx2"},
       {"without_dots", "", std::string("TUTTI_CPU=") + (__builtin_cpu_supports("avx512f") ? "avx512" : "avx2")},
       {"avx2_two", "-n 2", "TUTTI_CPU=avx2"},
       {"compiled", "-n 2 --training.compile=true", ""},
       {"avx2_compiled", "--training.compile=true", "TUTTI_CPU=avx2"}});
}

// Whoever multiplies, the model learns the same: sums in another order differ in the last bits.
TEST_F(Quickstart, FastModeLearnsTheSame) {
  ASSERT_EQ(train("strict").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("fast", "--numerics.mode=fast", "TUTTI_GEMM_CHOICE=measure,samples=1 TUTTI_CACHE_DIR=cache").status,
            0)
      << work.read("err.txt");
  const std::vector<std::string> strict = work.metric("strict", "loss"), fast = work.metric("fast", "loss");
  ASSERT_EQ(strict.size(), fast.size());
  for (size_t i = 0; i < strict.size(); ++i)
    EXPECT_NEAR(std::stod(strict[i]), std::stod(fast[i]), 1e-3) << "step " << i + 1;
}

TEST_F(Quickstart, InterruptedAndResumedEqualsUninterrupted) {
  ASSERT_EQ(train("whole").status, 0) << work.read("err.txt");
  const int pid = work.start("train " + std::string(kQuickstart) + "--run.name=cut -n 2");
  ASSERT_TRUE(wait_for(work.folder() / "runs/cut/metrics.jsonl"));
  while (work.read("runs/cut/metrics.jsonl").empty() && kill(pid, 0) == 0) usleep(10'000);
  kill(pid, SIGINT);
  const int status = Workplace::wait(pid);
  EXPECT_TRUE(status == 130 || status == 0) << work.read("err.txt");  // 0: it was faster than the signal
  ASSERT_EQ(train("cut").status, 0) << work.read("err.txt");
  EXPECT_EQ(work.metric("whole", "loss_hex"), work.metric("cut", "loss_hex"));
  EXPECT_EQ(work.metric("whole", "step"), work.metric("cut", "step"));
  EXPECT_EQ(work.digest("whole"), work.digest("cut"));
}

TEST_F(Quickstart, ResumesOnAnotherNumberOfRanks) {
  ASSERT_EQ(train("whole").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("grown", "-n 2 --training.steps=20").status, 0);
  std::filesystem::remove_all(work.folder() / "runs/grown/checkpoint/step-20");
  ASSERT_EQ(train("grown", "-n 4").status, 0) << work.read("err.txt");
  EXPECT_EQ(work.metric("whole", "loss_hex"), work.metric("grown", "loss_hex"));
  EXPECT_EQ(work.digest("whole"), work.digest("grown"));
}

TEST_F(Quickstart, ANewRunWithOtherSettingsIsRefused) {
  ASSERT_EQ(train("run").status, 0) << work.read("err.txt");
  const Output other = train("run", "--training.seed=7");
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("training.seed"), std::string::npos) << other.err;
  EXPECT_NE(other.err.find("--fresh"), std::string::npos) << other.err;
  ASSERT_EQ(train("run", "--training.seed=7 --fresh").status, 0) << work.read("err.txt");
  EXPECT_TRUE(std::filesystem::exists(work.folder() / "runs/run.old-1/metrics.jsonl"));
}

TEST_F(Quickstart, AKilledRankIsNamedAndEndsTheRun) {
  const int pid = work.start("train " + std::string(kQuickstart) +
                             "--run.name=killed -n 2 --training.steps=100000 --lr_scheduler.warmup_steps=1");
  ASSERT_TRUE(wait_for(work.folder() / "runs/killed/metrics.jsonl"));
  const std::vector<int> ranks = ranks_of(pid);
  ASSERT_EQ(ranks.size(), 2u);
  const int first = ranks[0], second = ranks[1];
  kill(second, SIGKILL);
  EXPECT_EQ(Workplace::wait(pid), 137);
  EXPECT_NE(work.read("err.txt").find("was killed by SIGKILL"), std::string::npos) << work.read("err.txt");
  EXPECT_NE(kill(first, 0), 0) << "rank 0 outlived the run";
}

// Whatever moment the writer is killed at, what is called a checkpoint loads.
TEST_F(Quickstart, AKillDuringASaveLeavesTheCheckpointBefore) {
  for (int round = 0; round < 3; ++round) {
    const int pid =
        work.start("train " + std::string(kQuickstart) + "--run.name=kill --training.steps=1000 --checkpoint.every=1");
    const std::string before = work.read("runs/kill/metrics.jsonl");
    while (kill(pid, 0) == 0 && work.read("runs/kill/metrics.jsonl").size() < before.size() + 600) usleep(1'000);
    for (int i = 0; i < 5000; ++i) {  // until a save is under way
      bool saving = false;
      std::error_code none;
      for (const auto& entry : std::filesystem::directory_iterator(work.folder() / "runs/kill/checkpoint", none))
        saving = saving || entry.path().filename().string().starts_with(".tmp-");
      if (saving) break;
      usleep(200);
    }
    kill(pid, SIGKILL);
    EXPECT_EQ(Workplace::wait(pid), 137);
    const Output check = work.tutti("checkpoint verify runs/kill");
    EXPECT_EQ(check.status, 0) << check.err;
  }
}

TEST_F(Quickstart, AFullDiskLosesNothing) {
  ASSERT_EQ(train("full", "--training.steps=10").status, 0) << work.read("err.txt");
  const std::string before = work.digest("full");
  // Files may not grow beyond 1 MiB, which is less than the model.
  const Output full =
      train("full", "--training.steps=20 --lr_scheduler.decay_ratio=1", "trap '' XFSZ; ulimit -f 1024;");
  EXPECT_EQ(full.status, 1) << full.err;
  EXPECT_NE(full.err.find("was not saved, earlier ones are whole"), std::string::npos) << full.err;
  EXPECT_EQ(work.digest("full"), before);
}

TEST_F(Quickstart, ACheckpointOfAnotherModelIsRefused) {
  ASSERT_EQ(train("small", "--training.steps=5").status, 0) << work.read("err.txt");
  const Output other =
      train("large", "--training.steps=5 --model.flavor=debugmodel --checkpoint.initial_load_path=runs/small");
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("does not fit the module"), std::string::npos) << other.err;
}

TEST_F(Quickstart, ATruncatedCheckpointIsNamed) {
  ASSERT_EQ(train("cut", "--training.steps=5").status, 0) << work.read("err.txt");
  const auto file = work.folder() / "runs/cut/checkpoint/step-5/model.safetensors";
  std::filesystem::resize_file(file, std::filesystem::file_size(file) / 2);
  const Output check = work.tutti("checkpoint verify runs/cut");
  EXPECT_EQ(check.status, 1);
  EXPECT_NE(check.err.find("model.safetensors"), std::string::npos) << check.err;
}

TEST_F(Quickstart, LeavesTheFilesOfARun) {
  ASSERT_EQ(train("files").status, 0) << work.read("err.txt");
  for (const char* name :
       {"config.resolved.toml", "metrics.jsonl", "report.html", "sample.txt", "checkpoint/step-20/model.safetensors"})
    EXPECT_TRUE(std::filesystem::exists(work.folder() / "runs/files" / name)) << name;
  const Output text = work.tutti("generate runs/files --prompt 'the river' --max-tokens 5");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out.rfind("the river", 0), 0u) << text.out;
}

}  // namespace
}  // namespace tutti::test
