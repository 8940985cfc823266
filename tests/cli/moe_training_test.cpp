// Training a mixture of experts: the losses, gradient norms, loads and checkpoints of one rank in every layout of data
// ranks, resumed across layouts.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/cli/support/layout_runs.h"

namespace tutti::test {
namespace {

struct Experts : LayoutRuns {
  Experts() : LayoutRuns(6, "--model.flavor=tiny_moe --optimizer.lr=1e-2 --numerics.token_grain=16") {}
  std::string loads(const std::string& run) const {
    std::string all;
    for (const std::string& tokens : work.metric(run, "experts")) all += tokens + "\n";
    return all;
  }
  void expect_equal(const std::string& a, const std::string& b) {
    expect_equal_runs(a, b);
    EXPECT_NE(loads(a), "");
    EXPECT_EQ(loads(a), loads(b)) << b;
  }
  // Runs that begin in one layout and go on in another are the run of one rank.
  void expect_resumed(std::initializer_list<std::pair<const char*, const char*>> rows) {
    ASSERT_EQ(train("whole", "").status, 0) << work.read("err.txt");
    for (const auto& [first, second] : rows) {
      const std::string name = fmt::format("resumed_{}", ++resumed);
      ASSERT_EQ(train(name, std::string(first) + " --stop-at 3").status, 0) << work.read("err.txt");
      ASSERT_EQ(train(name, second).status, 0) << work.read("err.txt");
      expect_equal("whole", name);
    }
  }
  int resumed = 0;
};

struct Layout {
  const char *name, *flags;
};

struct ExpertsLayout : Experts, testing::WithParamInterface<Layout> {};

TEST_P(ExpertsLayout, HasTheRunOfOneRank) {
  ASSERT_EQ(train("one", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("many", GetParam().flags).status, 0) << work.read("err.txt");
  expect_equal("one", "many");
}

constexpr Layout kLayouts[] = {
    {"Dp2", "-n 2"},
    {"Dp3", "-n 3"},
    {"Dp3EveryRound", "-n 3 --parallelism.data_parallel_schedule=every_round"},
    {"Fsdp2", "-n 2 --parallelism.data_parallel_shard_degree=2"},
    {"Fsdp3", "-n 3 --parallelism.data_parallel_shard_degree=3"},
    {"Fsdp8MoreRanksThanExperts", "-n 8 --parallelism.data_parallel_shard_degree=8"},
    {"Fsdp3Gloo", "-n 3 --parallelism.data_parallel_shard_degree=3 --runtime.transport=gloo"},
    {"Fsdp3GlooAlwaysRecomputed",
     "-n 3 --parallelism.data_parallel_shard_degree=3 --runtime.transport=gloo "
     "--parallelism.fsdp_reshard_after_forward=always --activation_checkpoint.mode=full"},
    {"Hsdp2x2", "-n 4 --parallelism.data_parallel_shard_degree=2"},
    {"Hsdp2x2Compiled", "-n 4 --parallelism.data_parallel_shard_degree=2 --training.compile=true"},
    {"RankThreads", "-n 3 --runtime.transport=threads"},
    {"Compiled", "--training.compile=true"},
    {"Recomputed", "--activation_checkpoint.mode=full"},
    {"CompiledRecomputed", "-n 2 --training.compile=true --activation_checkpoint.mode=full"},
    {"CompiledWithinABudget",
     "--training.compile=true --activation_checkpoint.mode=memory_budget --activation_checkpoint.memory_budget=0"},
    {"LossInChunks", "--training.loss_max_bytes=90000"},
    {"Overlapped", "-n 2 --parallelism.data_parallel_overlap=backward"},
    {"SavedInBackground", "-n 2 --checkpoint.async=true --checkpoint.every=2"},
};
INSTANTIATE_TEST_SUITE_P(On, ExpertsLayout, testing::ValuesIn(kLayouts),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(Experts, InBf16HaveTheRunOfOneRank) {
  const std::string bf16 = " --training.mixed_precision_param=bfloat16";
  ASSERT_EQ(train("one", bf16).status, 0) << work.read("err.txt");
  const std::pair<const char*, const char*> rows[] = {{"dp2", "-n 2"},
                                                      {"fsdp3", "-n 3 --parallelism.data_parallel_shard_degree=3"},
                                                      {"compiled", "-n 2 --training.compile=true"},
                                                      {"recomputed", "--activation_checkpoint.mode=full"}};
  for (const auto& [name, flags] : rows) {
    ASSERT_EQ(train(name, flags + bf16).status, 0) << work.read("err.txt");
    expect_equal("one", name);
  }
}

TEST_F(Experts, HaveTheSameRunOnAnyThreadsAndInstructionSet) {
  ASSERT_EQ(train("one", "").status, 0) << work.read("err.txt");
  const std::pair<const char*, const char*> rows[] = {{"threads", "TUTTI_THREADS=3"}, {"avx2", "TUTTI_CPU=avx2"}};
  for (const auto& [name, variables] : rows) {
    ASSERT_EQ(train(name, "", variables).status, 0) << work.read("err.txt");
    expect_equal("one", name);
  }
}

// The biases of the routers are part of a checkpoint.
TEST_F(Experts, GoOnInAnyOtherLayout) {
  expect_resumed({
      {"-n 4 --parallelism.data_parallel_shard_degree=4", "-n 1"},
      {"-n 1", "-n 3 --parallelism.data_parallel_shard_degree=3 --training.compile=true"},
      {"-n 3 --activation_checkpoint.mode=full", "-n 4 --parallelism.data_parallel_shard_degree=2"},
  });
  const Output refused = train("whole", "--model.load_balance_coeff=0.1 --training.steps=7");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("model.load_balance_coeff: 0.001 -> 0.1"), std::string::npos) << refused.err;
}

// Validation and samples between steps count no tokens: the loads of a step are those of its own batch.
TEST_F(Experts, CountTheTokensOfTrainingOnly) {
  ASSERT_EQ(train("validated", "--validation.every=1").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("plain", "--validation.every=0").status, 0) << work.read("err.txt");
  EXPECT_EQ(loads("validated"), loads("plain"));
  EXPECT_EQ(work.digest("validated"), work.digest("plain"));
}

TEST_F(Experts, AreBalancedByTheirCoefficient) {
  ASSERT_EQ(train("balanced", "--model.load_balance_coeff=0.05").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("free", "--model.load_balance_coeff=0").status, 0) << work.read("err.txt");
  const auto last = [&](const std::string& run) { return work.metric(run, "experts").back(); };
  EXPECT_NE(last("balanced"), last("free"));
  EXPECT_NE(last("free").find("\"bias_max\":0,\"bias_min\":0"), std::string::npos) << last("free");
}

// A file with the names of published models holds the same model, biases of routers included.
TEST_F(Experts, AreExportedAndReadUnderPublishedNames) {
  ASSERT_EQ(train("run", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(work.tutti("checkpoint export runs/run published.safetensors").status, 0) << work.read("err.txt");
  const std::string file = work.read("published.safetensors");
  for (const char* name : {"\"model.layers.1.mlp.experts.5.gate_proj.weight\"",
                           "\"model.layers.0.mlp.experts.0.down_proj.weight\"", "\"model.layers.0.mlp.gate.weight\""})
    EXPECT_NE(file.find(name), std::string::npos) << name;
  EXPECT_EQ(file.find("experts.w1"), std::string::npos);
  for (const std::string from : {"published.safetensors", "runs/run/checkpoint/step-6"}) {
    const std::string name = from.starts_with("p") ? "from_published" : "from_checkpoint";
    ASSERT_EQ(
        train(name, "-n 2 --parallelism.data_parallel_shard_degree=2 --checkpoint.initial_load_path=" + from).status, 0)
        << work.read("err.txt");
  }
  expect_equal("from_checkpoint", "from_published");
  EXPECT_NE(work.metric("run", "loss_hex"), work.metric("from_published", "loss_hex"));
}

TEST_F(Experts, LoadsAreReportedAsTextAndAsAPage) {
  ASSERT_EQ(train("run", "").status, 0) << work.read("err.txt");
  const std::string page = work.read("runs/run/report.html");
  EXPECT_NE(page.find("<h2>Loads of experts</h2>"), std::string::npos);
  EXPECT_NE(page.find("aria-label=\"loads of experts at step 6\""), std::string::npos);
  const Output text = work.tutti("report runs/run --experts");
  EXPECT_EQ(text.status, 0) << text.err;
  EXPECT_EQ(text.out.substr(0, 7), "step 6\n");
  const Output lines = work.tutti("report runs/run --experts --step 2 --json");
  const std::string second = work.read("runs/run/metrics.jsonl");
  for (const char* layer : {"{\"layer\":0,", "{\"layer\":1,"}) {
    const size_t at = lines.out.find(layer);
    ASSERT_NE(at, std::string::npos) << lines.out;
    EXPECT_NE(second.find(lines.out.substr(at, lines.out.find('\n', at) - at)), std::string::npos) << lines.out;
  }
  EXPECT_EQ(work.tutti("report runs/run").out.substr(0, 12), "step 6: loss");
  const Output missing = work.tutti("report runs/run --step 9");
  EXPECT_EQ(missing.status, 2);
  EXPECT_NE(missing.err.find("runs/run has no record of step 9; it has recorded steps 1 to 6"), std::string::npos)
      << missing.err;
  const Output nothing = work.tutti("report corpus.jsonl");
  EXPECT_NE(nothing.err.find("corpus.jsonl is not the folder of a run: it holds no metrics.jsonl"), std::string::npos)
      << nothing.err;
}

// Experts that ranks divide.
struct DividedExperts : Experts {
  DividedExperts() { flags += " --model.flavor=tiny_moe-ep8"; }
};
struct DividedExpertsLayout : DividedExperts, testing::WithParamInterface<Layout> {};

// The schedule that the layout needs is chosen or given.
#define EP2 " --parallelism.expert_parallel_degree=2"
#define EP4 " --parallelism.expert_parallel_degree=4 --parallelism.data_parallel_schedule=every_round"
#define EXACT " --parallelism.expert_parallel_comm_backend=standard_exact"
#define STORE " --parallelism.expert_parallel_comm_backend=direct_store"
#define READ " --parallelism.expert_parallel_comm_backend=gather_on_read"
constexpr Layout kDividedLayouts[] = {
    {"Ep2", "-n 2" EP2},
    {"Ep4", "-n 4" EP4},
    {"Ep8", "-n 8 --parallelism.expert_parallel_degree=8 --parallelism.data_parallel_schedule=every_round"},
    {"Dp2Ep2", "-n 4" EP2},
    {"Dp3Ep2", "-n 6" EP2},
    {"Dp2Ep4", "-n 8" EP4},
    {"Fsdp2Ep2", "-n 2 --parallelism.data_parallel_shard_degree=2" EP2},
    {"Fsdp4Ep4", "-n 4 --parallelism.data_parallel_shard_degree=4" EP4},
    {"Fsdp4Ep2", "-n 4 --parallelism.data_parallel_shard_degree=4" EP2},
    {"Fsdp6Ep2", "-n 6 --parallelism.data_parallel_shard_degree=6" EP2},
    {"Fsdp8Ep4", "-n 8 --parallelism.data_parallel_shard_degree=8" EP4},
    {"Hsdp2x4Ep2", "-n 8 --parallelism.data_parallel_shard_degree=4" EP2},
    {"Hsdp2x4Ep2GlooOptimizerOverAll",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.outer_dp_sharding_strategy=optim "
     "--runtime.transport=gloo" EP2},
    {"Hsdp2x4Ep2OptimizerOverAll",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.outer_dp_sharding_strategy=optim" EP2},
    {"Hsdp2x2Ep4", "-n 4 --parallelism.data_parallel_shard_degree=2" EP4},
    {"Ep2Compiled", "-n 2 --training.compile=true" EP2},
    {"Dp3Ep2Compiled", "-n 6 --training.compile=true" EP2},
    {"Fsdp4Ep2CompiledRecomputed",
     "-n 4 --parallelism.data_parallel_shard_degree=4 --training.compile=true --activation_checkpoint.mode=full" EP2},
    {"Ep4Recomputed", "-n 4 --activation_checkpoint.mode=full" EP4},
    {"Ep4Gloo", "-n 4 --runtime.transport=gloo" EP4},
    {"Fsdp4Ep2Gloo", "-n 4 --parallelism.data_parallel_shard_degree=4 --runtime.transport=gloo" EP2},
    {"Fsdp6Ep2GlooRecomputedAlways",
     "-n 6 --parallelism.data_parallel_shard_degree=6 --runtime.transport=gloo --activation_checkpoint.mode=full "
     "--parallelism.fsdp_reshard_after_forward=always" EP2},
    {"Ep2Threads", "-n 4 --runtime.transport=threads" EP2},
    {"Ep4Exact", "-n 4" EP4 EXACT},
    {"Dp2Ep2ExactGlooRecomputed", "-n 4 --runtime.transport=gloo --activation_checkpoint.mode=full" EP2 EXACT},
    {"Ep2Store", "-n 2" EP2 STORE},
    {"Ep4Store", "-n 4" EP4 STORE},
    {"Dp3Ep2Store", "-n 6" EP2 STORE},
    {"Fsdp4Ep2Store", "-n 4 --parallelism.data_parallel_shard_degree=4" EP2 STORE},
    {"Ep4StoreCompiled", "-n 4 --training.compile=true" EP4 STORE},
    {"Fsdp4Ep2StoreCompiledRecomputed",
     "-n 4 --parallelism.data_parallel_shard_degree=4 --training.compile=true --activation_checkpoint.mode=full" EP2
         STORE},
    {"Ep2StoreCompiledWithinABudget",
     "-n 2 --training.compile=true --activation_checkpoint.mode=memory_budget "
     "--activation_checkpoint.memory_budget=0" EP2 STORE},
    {"Ep4StoreRecomputedThreads", "-n 4 --activation_checkpoint.mode=full --runtime.transport=threads" EP4 STORE},
    {"Ep2Read", "-n 2" EP2 READ},
    {"Ep4Read", "-n 4" EP4 READ},
    {"Fsdp4Ep2Read", "-n 4 --parallelism.data_parallel_shard_degree=4" EP2 READ},
    {"Ep4ReadCompiled", "-n 4 --training.compile=true" EP4 READ},
    {"Ep4ReadRecomputed", "-n 4 --activation_checkpoint.mode=full" EP4 READ},
    {"Dp2Ep2ReadCompiledRecomputedThreads",
     "-n 4 --training.compile=true --activation_checkpoint.mode=full --runtime.transport=threads" EP2 READ},
    {"Ep2SavedInBackground", "-n 2 --checkpoint.async=true --checkpoint.every=1 --checkpoint.keep_latest=2" EP2},
};

TEST_P(DividedExpertsLayout, HasTheRunOfOneRank) {
  ASSERT_EQ(train("one", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("many", GetParam().flags).status, 0) << work.read("err.txt");
  EXPECT_NE(work.read("err.txt").find(" ep "), std::string::npos) << work.read("err.txt");
  expect_equal("one", "many");
}
INSTANTIATE_TEST_SUITE_P(On, DividedExpertsLayout, testing::ValuesIn(kDividedLayouts),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(DividedExperts, HaveTheRunOfOneRankInBf16AndWithDropout) {
  const std::string flags = "--training.mixed_precision_param=bfloat16 --model.dropout=0.1 ";
  ASSERT_EQ(train("one", flags).status, 0) << work.read("err.txt");
  int number = 0;
  for (const char* layout : {"-n 4" EP4, "-n 4 --parallelism.data_parallel_shard_degree=4 --training.compile=true" EP2,
                             "-n 4" EP4 EXACT, "-n 4 --training.compile=true" EP4 STORE, "-n 2" EP2 READ}) {
    const std::string name = "many" + std::to_string(number++);
    ASSERT_EQ(train(name, flags + layout).status, 0) << work.read("err.txt");
    expect_equal("one", name);
  }
}

// Whoever read rows that are gone, or not there yet, would read NaN.
TEST_F(DividedExperts, HaveTheRunOfOneRankWithPoisonedBuffers) {
  ASSERT_EQ(train("one", "").status, 0) << work.read("err.txt");
  const char* const layouts[] = {
      "-n 4" EP4 STORE, "-n 2 --training.compile=true --activation_checkpoint.mode=full" EP2 STORE, "-n 4" EP4 READ};
  for (size_t i = 0; i < std::size(layouts); ++i) {
    const std::string name = "poisoned" + std::to_string(i);
    ASSERT_EQ(train(name, layouts[i], "TUTTI_POISON_EXPERT_ROWS=1").status, 0) << work.read("err.txt");
    expect_equal("one", name);
  }
}

// A sample grows by a token at a time, and its batches share few buffers.
TEST_F(DividedExperts, SampleWithFewBuffers) {
  const std::string sampling =
      " --validation.sample_tokens=100 --data.sequence_length=128 --training.global_batch_tokens=1024";
  ASSERT_EQ(train("one", sampling).status, 0) << work.read("err.txt");
  for (const char* exchange : {STORE, READ}) {
    const std::string name = std::string("many") + (std::string(exchange) == STORE ? "_store" : "_read");
    ASSERT_EQ(train(name, "-n 2" EP2 + sampling + exchange, "ulimit -n 150;").status, 0) << work.read("err.txt");
    expect_equal("one", name);
  }
}

// Ranges of tokens restart at every shard of 64: a range of 128, which it does not fill, or 24, 24 and 16.
TEST_F(DividedExperts, HaveTheRunOfOneRankWhereShardsEndInsideARange) {
  const std::pair<const char*, const char*> rows[] = {
      {"128", "-n 2" EP2},
      {"24", "-n 4" EP4},
      {"24", "-n 6 --training.compile=true" EP2},
      {"24", "-n 4 --parallelism.data_parallel_shard_degree=4 --activation_checkpoint.mode=full" EP2},
      {"24", "-n 4 --runtime.transport=gloo" EP4 EXACT},
      {"24", "-n 4 --training.compile=true" EP4 STORE},
      {"24", "-n 4 --parallelism.data_parallel_shard_degree=4" EP2 READ},
  };
  for (const char* grain : {"128", "24"})
    ASSERT_EQ(train(std::string("one") + grain, std::string("--numerics.token_grain=") + grain).status, 0)
        << work.read("err.txt");
  int number = 0;
  for (const auto& [grain, layout] : rows) {
    const std::string name = "many" + std::to_string(number++);
    ASSERT_EQ(train(name, std::string("--numerics.token_grain=") + grain + " " + layout).status, 0)
        << work.read("err.txt");
    expect_equal(std::string("one") + grain, name);
  }
}

TEST_F(DividedExperts, GoOnInAnyOtherLayout) {
  expect_resumed({
      {"-n 8 --parallelism.expert_parallel_degree=8 --parallelism.data_parallel_schedule=every_round", "-n 2" EP2},
      {"-n 4 --parallelism.data_parallel_shard_degree=4" EP4 STORE, "-n 2" EP2 READ},
      {"-n 3 --parallelism.data_parallel_shard_degree=3", "-n 6 --parallelism.data_parallel_shard_degree=6" EP2},
  });
}

TEST_F(Experts, RefuseDegreesThatDoNotFit) {
  const std::pair<const char*, const char*> cases[] = {
      {"-n 2 --parallelism.expert_parallel_degree=2 --parallelism.data_parallel_schedule=once_a_step",
       "parallelism.expert_parallel_degree = 2: ranks that divide experts or their tokens run neighbouring shards at "
       "once; set parallelism.data_parallel_schedule = every_round or auto"},
      {"-n 3 --parallelism.expert_parallel_degree=3 --parallelism.data_parallel_schedule=every_round",
       "parallelism.expert_parallel_degree = 3: expected a power of two up to the 8 virtual shards"},
      {"-n 4" EP4,
       "parallelism.expert_parallel_degree = 4: 'model.layers.0.mlp' has 6 experts, which it does not divide"},
      {"-n 3" EP2, "parallelism.expert_parallel_degree = 2 does not divide 3 ranks; expected one of 1"},
      {"-n 2 --model.flavor=tiny" EP2, "parallelism.expert_parallel_degree = 2: the model qwen3 tiny has no experts"},
      {"-n 2 --runtime.transport=gloo" EP2 STORE,
       "parallelism.expert_parallel_comm_backend = direct_store: rows are in memory that the ranks share, and with "
       "runtime.transport = 'gloo' they share none; set runtime.transport = shm or threads"},
      {"-n 2 --training.compile=true" EP2 EXACT,
       "parallelism.expert_parallel_comm_backend = standard_exact: it reads on the host how many rows come, which a "
       "compiled step cannot do"},
      {"-n 4 --parallelism.tensor_parallel_degree=2" EP2,
       "qwen3 tiny_moe: tensor parallelism over 2 ranks would not have the bits of one rank; expected a power of two "
       "up to 1"},
  };
  for (const auto& [flags, message] : cases) {
    const Output output = train("refused", flags);
    EXPECT_EQ(output.status, 2) << flags;
    EXPECT_NE(output.err.find(message), std::string::npos) << flags << ": " << output.err;
  }
}

// Tensor-parallel ranks, which divide the tokens of a shard for its experts.
struct DividedTokens : Experts {
  DividedTokens() { flags += " --model.flavor=tiny_moe-tp4"; }
};
struct DividedTokensLayout : DividedTokens, testing::WithParamInterface<Layout> {};

#define ROUNDS " --parallelism.data_parallel_schedule=every_round"
#define TP2 " --parallelism.tensor_parallel_degree=2" ROUNDS
#define TP4 " --parallelism.tensor_parallel_degree=4"
constexpr Layout kDividedTokensLayouts[] = {
    {"Tp2", "-n 2" TP2},
    {"Tp4", "-n 4" TP4},
    {"Tp2WithoutSequence", "-n 2 --parallelism.enable_sequence_parallel=false" TP2},
    {"Dp3Tp2", "-n 6" TP2},
    {"Fsdp2Tp2", "-n 4 --parallelism.data_parallel_shard_degree=2" TP2},
    {"Tp2Ep2", "-n 2 --parallelism.expert_parallel_degree=2" TP2},
    {"Tp4Ep2", "-n 4 --parallelism.expert_parallel_degree=2" TP4},
    {"Dp2Tp2Ep4", "-n 4 --parallelism.expert_parallel_degree=4" TP2},
    {"Dp3Tp2Ep2", "-n 6 --parallelism.expert_parallel_degree=2" TP2},
    {"Fsdp4Tp2Ep4", "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4" TP2},
    {"Hsdp2x2Tp2Ep2", "-n 8 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=2" TP2},
    {"Fsdp2Tp4Ep8", "-n 8 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=8" TP4},
    {"Fsdp4Tp2Ep4Compiled",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4 "
     "--training.compile=true" TP2},
    {"Fsdp4Tp2Ep4Recomputed",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4 "
     "--activation_checkpoint.mode=full" TP2},
    {"Fsdp2Tp2Ep2WithoutSequence",
     "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=2 "
     "--parallelism.enable_sequence_parallel=false" TP2},
    {"Fsdp2Tp2Ep4Gloo",
     "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=4 "
     "--runtime.transport=gloo" TP2},
    {"Fsdp2Tp2Ep2Threads",
     "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=2 "
     "--runtime.transport=threads" TP2},
    {"Fsdp2Tp2Ep4SavedInBackground",
     "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=4 --checkpoint.async=true "
     "--checkpoint.every=1 --checkpoint.keep_latest=2" TP2},
    {"Fsdp4Tp2Ep4Exact",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4" TP2 EXACT},
    {"Fsdp4Tp2Ep4Store",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4" TP2 STORE},
    {"Fsdp4Tp2Ep4StoreCompiledRecomputed",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4 --training.compile=true "
     "--activation_checkpoint.mode=full" TP2 STORE},
    {"Fsdp4Tp2Ep4ReadRecomputed",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4 "
     "--activation_checkpoint.mode=full" TP2 READ},
    {"Fsdp4Tp2Ep4ReadCompiled",
     "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4 "
     "--training.compile=true" TP2 READ},
    // The same flavor without tensor parallelism.
    {"Ep2", "-n 2" EP2},
    {"Fsdp2Ep2", "-n 2 --parallelism.data_parallel_shard_degree=2" EP2},
    {"Fsdp3", "-n 3 --parallelism.data_parallel_shard_degree=3"},
};

TEST_P(DividedTokensLayout, HasTheRunOfOneRank) {
  ASSERT_EQ(train("one", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(train("many", GetParam().flags).status, 0) << work.read("err.txt");
  expect_equal("one", "many");
}
INSTANTIATE_TEST_SUITE_P(On, DividedTokensLayout, testing::ValuesIn(kDividedTokensLayouts),
                         [](const auto& param) { return std::string(param.param.name); });

TEST_F(DividedTokens, HaveTheRunOfOneRankInBf16AndWithDropout) {
  const std::string flags = "--training.mixed_precision_param=bfloat16 --model.dropout=0.1 ";
  ASSERT_EQ(train("one", flags).status, 0) << work.read("err.txt");
  const std::pair<const char*, const char*> rows[] = {
      {"eager", "-n 8 --parallelism.data_parallel_shard_degree=4 --parallelism.expert_parallel_degree=4" TP2},
      {"compiled",
       "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=4 "
       "--training.compile=true" TP2},
      {"without_ep", "-n 4 --activation_checkpoint.mode=full" TP4},
  };
  for (const auto& [name, layout] : rows) {
    ASSERT_EQ(train(name, flags + layout).status, 0) << work.read("err.txt");
    expect_equal("one", name);
  }
}

// The tensor-parallel ranks have 5 and 4 of 9 tokens, as many ranges each, whose trees are ((0 + 1) + 2) + (3 + 4) and
// (0 + 1) + (2 + 3).
TEST_F(DividedTokens, HaveTheRunOfOneRankWherePartsHaveUnequalNumbersOfRanges) {
  const std::string small = " --data.sequence_length=9 --training.global_batch_tokens=72 --numerics.token_grain=1 ";
  ASSERT_EQ(train("one", small).status, 0) << work.read("err.txt");
  int number = 0;
  for (const char* layout : {"-n 2" TP2, "-n 2 --parallelism.expert_parallel_degree=2" TP2,
                             "-n 4 --parallelism.expert_parallel_degree=4" TP2 STORE,
                             "-n 2 --parallelism.expert_parallel_degree=2 --training.compile=true" TP2 READ}) {
    const std::string name = "many" + std::to_string(number++);
    ASSERT_EQ(train(name, small + layout).status, 0) << work.read("err.txt");
    expect_equal("one", name);
  }
}

TEST_F(DividedTokens, GoOnInAnyOtherLayout) {
  expect_resumed({
      {"-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=4" TP2,
       "-n 3 --parallelism.data_parallel_shard_degree=3"},
      {"-n 2" EP2, "-n 4 --parallelism.expert_parallel_degree=2" TP4},
      {"-n 6" TP2, "-n 1"},
  });
}

TEST_F(DividedTokens, BeginWithTheWeightsOfAnotherRun) {
  ASSERT_EQ(train("run", "").status, 0) << work.read("err.txt");
  ASSERT_EQ(work.tutti("checkpoint export runs/run published.safetensors").status, 0) << work.read("err.txt");
  for (const std::string from : {"published.safetensors", "runs/run/checkpoint/step-6"}) {
    const std::string name = from.starts_with("p") ? "published" : "checkpoint",
                      load = " --checkpoint.initial_load_path=" + from;
    ASSERT_EQ(train(name + "_one", load).status, 0) << work.read("err.txt");
    ASSERT_EQ(train(name + "_many",
                    "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.expert_parallel_degree=4" TP2 + load)
                  .status,
              0)
        << work.read("err.txt");
    expect_equal(name + "_one", name + "_many");
  }
}

TEST_F(DividedTokens, RefuseWhatWouldHaveOtherBits) {
  const std::pair<const char*, const char*> cases[] = {
      {"-n 2 --parallelism.tensor_parallel_degree=2 --parallelism.data_parallel_schedule=once_a_step",
       "parallelism.tensor_parallel_degree = 2 with experts: ranks that divide experts or their tokens run "
       "neighbouring shards at once; set parallelism.data_parallel_schedule = every_round or auto"},
      {"-n 2 --numerics.token_grain=64" TP2,
       "tensor parallelism over 2 ranks would not have the bits of one rank; expected a power of two up to 1, for "
       "degrees are bounded by the 64 "
       "tokens of a batch, which a mixture of experts cuts between ranges of numerics.token_grain = 64 (1)"},
      {"-n 4 --numerics.token_grain=24" TP2,
       "expected a power of two up to 1, for degrees are bounded by the 64 tokens of a batch, which a mixture of "
       "experts cuts between ranges of "
       "numerics.token_grain = 24 (1)"},
      {"-n 4 --parallelism.expert_parallel_degree=3" TP2,
       "parallelism.expert_parallel_degree = 3 does not divide 4 ranks; expected one of 1, 2, 4"},
      {"-n 8 --parallelism.tensor_parallel_degree=8" ROUNDS,
       "expected a power of two up to 4, for degrees are bounded by 4 key/value heads"},
  };
  for (const auto& [flags, message] : cases) {
    const Output output = train("refused", flags);
    EXPECT_EQ(output.status, 2) << flags;
    EXPECT_NE(output.err.find(message), std::string::npos) << flags << ": " << output.err;
  }
}

// A numeric change records the file anew, with the reason in the commit: TUTTI_RENEW_GOLDEN=1 ctest -R Experts.Losses.
TEST_F(Experts, LossesAreThoseOfTheGoldenFile) {
  const std::string path = TUTTI_SOURCE_DIR "/tests/golden/moe.loss";
  ASSERT_EQ(train("golden", "--training.steps=20 --validation.every=0").status, 0) << work.read("err.txt");
  const std::vector<std::string> losses = work.metric("golden", "loss_hex");
  if (std::getenv("TUTTI_RENEW_GOLDEN") != nullptr) {
    std::ofstream file(path);
    file << "# loss_hex of 20 steps of the flavor tiny_moe on a synthetic corpus, as tests/cli/moe_training_test.cpp "
            "runs it. f32, x86-64.\n";
    for (const std::string& loss : losses) file << loss << "\n";
  }
  std::ifstream file(path);
  std::vector<std::string> golden;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("#")) golden.push_back(line);
  }
  EXPECT_EQ(losses, golden);
}

}  // namespace
}  // namespace tutti::test
