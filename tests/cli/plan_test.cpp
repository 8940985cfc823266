// `tutti plan`: what it says of a step against what training measures, and what it says to wrong questions.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

constexpr const char* kConfig = TUTTI_SOURCE_DIR
    "/configs/quickstart.toml --data.tokenizer=byte --training.global_batch_tokens=2048 --training.steps=2 "
    "--lr_scheduler.warmup_steps=1 "
    "--validation.every=0 --validation.sample_tokens=0 --data.sequence_length=64 ";

struct Plan : testing::Test {
  Plan() { work.write("corpus.jsonl", synthetic_corpus(20, 200)); }
  nlohmann::json plan(const std::string& flags) {
    const Output made = work.tutti(std::string("plan ") + kConfig + "--json " + flags);
    EXPECT_EQ(made.status, 0) << work.read("err.txt");
    return nlohmann::json::parse(made.out.substr(0, made.out.find('\n')));
  }
  Workplace work;
};

struct Case {
  const char *name, *flags;
};
struct PlannedCase : Plan, testing::WithParamInterface<Case> {};

TEST_P(PlannedCase, IsWithinATenthOfTheMeasuredPeak) {
  const nlohmann::json planned = plan(GetParam().flags);
  ASSERT_EQ(
      work.tutti(std::string("train ") + kConfig + "--data corpus.jsonl --run.name=run " + GetParam().flags).status, 0)
      << work.read("err.txt");
  const std::string last = work.metric("run", "memory_peak_bytes").back();
  const double measured = std::stod(last), expected = planned["rank_0_bytes"].get<double>();
  EXPECT_LT(std::abs(expected - measured), 0.1 * measured)
      << "planned " << planned.dump() << "\nmeasured " << last << "\n"
      << work.read("err.txt");
}

constexpr Case kCases[] = {
    {"OneRank", ""},
    {"Bf16", "--training.mixed_precision_param=bfloat16"},
    {"Recomputed", "--activation_checkpoint.mode=full"},
    {"Compiled", "--training.compile=true"},
    {"CompiledBf16", "--training.compile=true --training.mixed_precision_param=bfloat16"},
    {"LossInChunks", "--training.loss_max_bytes=600000"},
    {"Sgd", "--optimizer.name=sgd"},
    {"Dp2", "-n 2"},
    {"Dp3", "-n 3"},
    {"Dp8", "-n 8"},
    {"Dp4EveryRound", "-n 4 --parallelism.data_parallel_schedule=every_round"},
    {"Fsdp2", "-n 2 --parallelism.data_parallel_shard_degree=2"},
    {"Fsdp2SavedInBackground",
     "-n 2 --parallelism.data_parallel_shard_degree=2 --checkpoint.async=true --checkpoint.every=1 "
     "--checkpoint.keep_latest=1"},
    {"Fsdp2Overlapped",
     "-n 2 --parallelism.data_parallel_shard_degree=2 --parallelism.data_parallel_overlap=backward "
     "--parallelism.reduce_scatter_max_input_buffers=4"},
    {"Fsdp4GlooKeptByTwo",
     "-n 4 --parallelism.data_parallel_shard_degree=4 --runtime.transport=gloo "
     "--parallelism.fsdp_reshard_after_forward=2"},
    {"Fsdp4Bf16", "-n 4 --parallelism.data_parallel_shard_degree=4 --training.mixed_precision_param=bfloat16"},
    {"Fsdp4EveryRound",
     "-n 4 --parallelism.data_parallel_shard_degree=4 --parallelism.data_parallel_schedule=every_round"},
    {"Fsdp3Gloo", "-n 3 --parallelism.data_parallel_shard_degree=3 --runtime.transport=gloo"},
    {"Fsdp2GlooCompiled",
     "-n 2 --parallelism.data_parallel_shard_degree=2 --runtime.transport=gloo --training.compile=true"},
    {"Fsdp4GlooCompiledKeptByTwo",
     "-n 4 --parallelism.data_parallel_shard_degree=4 --runtime.transport=gloo --training.compile=true "
     "--parallelism.fsdp_reshard_after_forward=2"},
    {"Fsdp3GlooCompiledBf16Kept",
     "-n 3 --parallelism.data_parallel_shard_degree=3 --runtime.transport=gloo --training.compile=true "
     "--training.mixed_precision_param=bfloat16 --parallelism.fsdp_reshard_after_forward=never"},
    {"Hsdp2x2", "-n 4 --parallelism.data_parallel_shard_degree=2"},
    {"Hsdp2x2OptimizerOverAll",
     "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim"},
    {"Hsdp2x2GlooOptimizerOverAll",
     "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim "
     "--runtime.transport=gloo"},
    {"Hsdp2x2GlooBf16OptimizerOverAll",
     "-n 4 --parallelism.data_parallel_shard_degree=2 --parallelism.outer_dp_sharding_strategy=optim "
     "--runtime.transport=gloo --training.mixed_precision_param=bfloat16"},
    {"Experts", "--model.flavor=tiny_moe"},
    {"ExpertsRecomputed", "--model.flavor=tiny_moe --activation_checkpoint.mode=full"},
    {"ExpertsCompiled", "--model.flavor=tiny_moe --training.compile=true"},
    {"ExpertsFsdp3Bf16",
     "-n 3 --model.flavor=tiny_moe --parallelism.data_parallel_shard_degree=3 "
     "--training.mixed_precision_param=bfloat16"},
    {"ExpertsEp2",
     "-n 2 --model.flavor=tiny_moe-ep8 --data.sequence_length=256 --parallelism.expert_parallel_degree=2 "
     "--parallelism.data_parallel_schedule=every_round"},
    {"ExpertsFsdp4Ep2",
     "-n 4 --model.flavor=tiny_moe-ep8 --data.sequence_length=256 --parallelism.data_parallel_shard_degree=4 "
     "--parallelism.expert_parallel_degree=2 --parallelism.data_parallel_schedule=every_round"},
    {"ExpertsEp2Store",
     "-n 2 --runtime.threads=1 --model.flavor=tiny_moe-ep8 --data.sequence_length=256 "
     "--parallelism.expert_parallel_degree=2 --parallelism.data_parallel_schedule=every_round "
     "--parallelism.expert_parallel_comm_backend=direct_store"},
    {"ExpertsEp2StoreRecomputed",
     "-n 2 --runtime.threads=1 --model.flavor=tiny_moe-ep8 --data.sequence_length=256 "
     "--parallelism.expert_parallel_degree=2 --parallelism.data_parallel_schedule=every_round "
     "--parallelism.expert_parallel_comm_backend=direct_store --activation_checkpoint.mode=full"},
    {"ExpertsEp2Read",
     "-n 2 --runtime.threads=1 --model.flavor=tiny_moe-ep8 --data.sequence_length=256 "
     "--parallelism.expert_parallel_degree=2 --parallelism.data_parallel_schedule=every_round "
     "--parallelism.expert_parallel_comm_backend=gather_on_read"},
    {"ExpertsEp2Exact",
     "-n 2 --runtime.threads=1 --model.flavor=tiny_moe-ep8 --data.sequence_length=256 "
     "--parallelism.expert_parallel_degree=2 --parallelism.data_parallel_schedule=every_round "
     "--parallelism.expert_parallel_comm_backend=standard_exact"},
    {"Dp4OutlivesARank", "-n 4 --training.survive_rank_loss=true"},
    {"Fsdp4Bf16OutlivesARank",
     "-n 4 --training.survive_rank_loss=true --parallelism.data_parallel_shard_degree=4 "
     "--training.mixed_precision_param=bfloat16"},
    {"Tp2", "-n 2 --model.flavor=quickstart-tp4 --data.sequence_length=256 --parallelism.tensor_parallel_degree=2"},
    {"Tp2WithoutSequence",
     "-n 2 --model.flavor=quickstart-tp4 --data.sequence_length=256 --parallelism.tensor_parallel_degree=2 "
     "--parallelism.enable_sequence_parallel=false"},
    {"Dp2Tp2Bf16",
     "-n 4 --model.flavor=quickstart-tp4 --data.sequence_length=256 --parallelism.tensor_parallel_degree=2 "
     "--training.mixed_precision_param=bfloat16"},
    {"Fsdp2Tp2",
     "-n 4 --model.flavor=quickstart-tp4 --data.sequence_length=256 --parallelism.tensor_parallel_degree=2 "
     "--parallelism.data_parallel_shard_degree=2"},
    {"Fsdp2Tp2Gloo",
     "-n 4 --model.flavor=quickstart-tp4 --data.sequence_length=256 --parallelism.tensor_parallel_degree=2 "
     "--parallelism.data_parallel_shard_degree=2 --runtime.transport=gloo"},
    {"Tp2Compiled",
     "-n 2 --model.flavor=quickstart-tp4 --data.sequence_length=256 --parallelism.tensor_parallel_degree=2 "
     "--training.compile=true"},
    {"Large", "--model.flavor=debugmodel --training.global_batch_tokens=1024"},
};
INSTANTIATE_TEST_SUITE_P(Of, PlannedCase, testing::ValuesIn(kCases),
                         [](const auto& param) { return std::string(param.param.name); });

struct SentCase : Plan, testing::WithParamInterface<Case> {};

// The bytes are those of rank 0, in layouts where it sends the most.
TEST_P(SentCase, TakesTheBytesThatArePlanned) {
  const nlohmann::json planned = plan(GetParam().flags);
  ASSERT_EQ(work.tutti(std::string("train ") + kConfig + "--data corpus.jsonl --runtime.threads=1 --run.name=run " +
                       GetParam().flags)
                .status,
            0)
      << work.read("err.txt");
  double expected = 0;
  for (const char* what : {"sent_gradient_bytes", "sent_parameter_bytes", "sent_activation_bytes"})
    expected += planned[what].get<double>();
  const double measured = std::stod(work.metric("run", "sent_bytes").back());
  EXPECT_NEAR(measured, expected, 0.04 * expected) << planned.dump();
}

#define GLOO " --runtime.transport=gloo"
#define FSDP(n) " --parallelism.data_parallel_shard_degree=" #n
#define AGAIN(how) " --parallelism.fsdp_reshard_after_forward=" #how
#define COMPILED " --training.compile=true"
#define EXPERTS                                                                                               \
  " --model.flavor=tiny_moe-tp4 --parallelism.data_parallel_schedule=every_round --data.sequence_length=256 " \
  "--numerics.token_grain=64"
#define EP(n) " --parallelism.expert_parallel_degree=" #n
#define TP(n) " --parallelism.tensor_parallel_degree=" #n
constexpr Case kSentCases[] = {
    {"Fsdp2", "-n 2" FSDP(2) GLOO},
    {"Fsdp2Compiled", "-n 2" FSDP(2) GLOO COMPILED},
    {"Fsdp2Always", "-n 2" FSDP(2) GLOO AGAIN(always)},
    {"Fsdp2AlwaysCompiled", "-n 2" FSDP(2) GLOO AGAIN(always) COMPILED},
    {"Fsdp2AlwaysRecomputed", "-n 2" FSDP(2) GLOO AGAIN(always) " --activation_checkpoint.mode=full"},
    {"Fsdp4KeptByTwo", "-n 4" FSDP(4) GLOO AGAIN(2)},
    {"Fsdp4Never", "-n 4" FSDP(4) GLOO AGAIN(never)},
    {"Hsdp2x2Always", "-n 4" FSDP(2) GLOO AGAIN(always)},
    {"ExpertsFsdp2", "-n 2" EXPERTS FSDP(2) GLOO},
    {"ExpertsFsdp4Ep2", "-n 4" EXPERTS FSDP(4) EP(2) GLOO},
    {"ExpertsFsdp4Ep2Compiled", "-n 4" EXPERTS FSDP(4) EP(2) GLOO COMPILED},
    {"ExpertsFsdp4Ep2Always", "-n 4" EXPERTS FSDP(4) EP(2) GLOO AGAIN(always)},
    {"ExpertsFsdp4Ep2AlwaysCompiled", "-n 4" EXPERTS FSDP(4) EP(2) GLOO AGAIN(always) COMPILED},
    {"ExpertsFsdp4Ep2Never", "-n 4" EXPERTS FSDP(4) EP(2) GLOO AGAIN(never)},
    {"ExpertsFsdp4Ep2KeptByTwo", "-n 4" EXPERTS FSDP(4) EP(2) GLOO AGAIN(2)},
    {"ExpertsFsdp4Ep4", "-n 4" EXPERTS FSDP(4) EP(4) GLOO},
    {"ExpertsFsdp2Tp2", "-n 4" EXPERTS FSDP(2) TP(2) GLOO},
    {"ExpertsFsdp2Tp2Compiled", "-n 4" EXPERTS FSDP(2) TP(2) GLOO COMPILED},
    {"ExpertsFsdp2Tp2Never", "-n 4" EXPERTS FSDP(2) TP(2) GLOO AGAIN(never)},
};
INSTANTIATE_TEST_SUITE_P(Of, SentCase, testing::ValuesIn(kSentCases),
                         [](const auto& param) { return std::string(param.param.name); });

// Dispatchers that share memory keep what validation needed: the step after it is that much larger.
TEST_F(Plan, CountsWhatRowsTakeBetweenSteps) {
  for (const char* exchange : {"direct_store", "gather_on_read"}) {
    for (const char* length : {"64", "256"}) {  // batches of validation as large as those of training, and larger ones
      const std::string flags =
          std::string(
              "-n 2 --runtime.threads=1 --model.flavor=tiny_moe-ep8 --parallelism.expert_parallel_degree=2 "
              "--parallelism.data_parallel_schedule=every_round "
              "--parallelism.expert_parallel_comm_backend=") +
          exchange + " --data.sequence_length=" + length;
      const auto bytes = [&](const char* name, const std::string& more) {
        EXPECT_EQ(work.tutti(std::string("train ") + kConfig +
                             "--data corpus.jsonl --data.validation_fraction=0.3 --run.name=" + name + exchange +
                             length + " " + flags + more)
                      .status,
                  0)
            << work.read("err.txt");
        return std::pair{plan(flags + more)["rank_0_bytes"].get<double>(),
                         std::stod(work.metric(std::string(name) + exchange + length, "memory_peak_bytes").back())};
      };
      const auto plain = bytes("plain", ""),
                 validated = bytes("validated", " --validation.every=1 --validation.steps=1");
      const double planned = validated.first - plain.first, measured = validated.second - plain.second;
      EXPECT_GT(planned, 100e3) << flags;
      EXPECT_NEAR(planned, measured, 0.03 * measured) << flags;
    }
  }
}

// A fourth of the parameters' memory is on each of four ranks that divide them, and so for the optimizer.
TEST_F(Plan, OfTheDebugModelOfExpertsDividesThem) {
  const Output made = work.tutti(
      "plan " TUTTI_SOURCE_DIR "/configs/qwen3_moe_debug.toml -n 4 --parallelism.data_parallel_shard_degree=4 --json");
  ASSERT_EQ(made.status, 0) << made.err;
  const nlohmann::json planned = nlohmann::json::parse(made.out.substr(0, made.out.find('\n')));
  EXPECT_NEAR(planned["parameters_bytes"].get<double>(), 315'234'560.0, 0.02 * 315'234'560.0) << planned.dump();
  EXPECT_NEAR(planned["optimizer_bytes"].get<double>(), 2 * 315'234'560.0, 0.02 * 2 * 315'234'560.0) << planned.dump();
}

// Nothing is allocated, and nothing is started.
TEST_F(Plan, IsThereForAThousandRanksOfAModelThatFitsNowhere) {
  const nlohmann::json planned = plan(
      "--model.flavor=32B -n 1024 --numerics.virtual_shards=1024 --training.global_batch_tokens=1048576 "
      "--parallelism.data_parallel_shard_degree=-1 "
      "--parallelism.data_parallel_replicate_degree=1 --data.sequence_length=1024 --ranks-per-host=8");
  EXPECT_EQ(planned["dp_shard"], 1024);
  // Each rank has a set of gradients in f32, and a 1024th of masters and moments.
  EXPECT_GT(planned["gradients_bytes"].get<double>(), 4.0 * 31e9);
  EXPECT_LT(planned["optimizer_bytes"].get<double>(), 8.0 * 34e9 / 1024 * 1.25);
  EXPECT_EQ(planned["host_ranks"], 8);
}

TEST_F(Plan, SaysWhatFilesOfTheModelTake) {
  const nlohmann::json files = plan("--model.name=gemma4 --model.flavor=31B --files");
  EXPECT_EQ(files["model"], "gemma4 31B");
  int64_t nbytes = 0;
  for (const nlohmann::json& kind : files["kinds"]) nbytes += kind["nbytes"]["q6_k"].get<int64_t>();
  EXPECT_EQ(nbytes, 25'185'649'904);
  EXPECT_EQ(files["kept_nbytes"]["q6_k"], nbytes);
  EXPECT_EQ(files["kept_nbytes"]["bf16"], 4 * (30'697'345'280 + 60)) << "numbers are computed with in f32";
  // 50 layers of 16 heads of 256 that see 1024 keys, and 10 of 4 heads of 512 that see all.
  const nlohmann::json longer = plan("--model.name=gemma4 --model.flavor=31B --files --context 32768");
  EXPECT_EQ(longer["context"], 32768);
  for (const auto& [name, of_windows, of_all] : {std::tuple{"float32", 16 * 256 * 4, 4 * 512 * 4},
                                                 {"bfloat16", 16 * 256 * 2, 4 * 512 * 2},
                                                 {"int8", 16 * (256 + 4), 4 * (512 + 4)},
                                                 {"fp8_e4m3", 16 * (256 + 4), 4 * (512 + 4)}}) {
    const int64_t windows = 2 * 50 * int64_t{of_windows}, all = 2 * 10 * int64_t{of_all};
    EXPECT_EQ(longer["cache"][name]["token_nbytes"], windows + all) << name;
    // A window of 1024 keys may begin and end within a page of 16.
    EXPECT_EQ(longer["cache"][name]["text_nbytes"], windows * (1024 + 3 * 16) + all * 32768) << name;
    EXPECT_EQ(files["cache"][name]["text_nbytes"], (windows + all) * files["context"].get<int64_t>()) << name;
  }
  const std::string table =
      work.tutti(std::string("plan ") + kConfig + "--model.name=gemma4 --model.flavor=31B --files").out;
  EXPECT_NE(table.find("bytes of a token"), std::string::npos) << table;
  EXPECT_NE(table.find("gemma4 31B: 30697345340 numbers"), std::string::npos) << table;
  EXPECT_NE(table.find("mlp.down_proj"), std::string::npos);
}

TEST_F(Plan, ListsParametersWithWhatRanksStoreOfThem) {
  const std::string flags =
      "--model.name=gemma4 --model.flavor=31B -n 4 --parallelism.data_parallel_shard_degree=4 "
      "--parallelism.data_parallel_schedule=every_round --tensors";
  const nlohmann::json planned = plan(flags);
  int64_t parameters = 0, stored = 0;
  for (const nlohmann::json& tensor : planned["tensors"]) {
    int64_t count = 1;
    for (const int64_t size : tensor["sizes"]) count *= size;
    parameters += count;
    ASSERT_EQ(tensor["stored_bytes"].size(), 4u);
    for (const int64_t bytes : tensor["stored_bytes"]) stored += bytes;
  }
  EXPECT_EQ(parameters, 30'697'345'280);
  EXPECT_EQ(stored, 4 * parameters);
  EXPECT_FALSE(plan("--model.flavor=tiny").contains("tensors"));
  const std::string table = work.tutti(std::string("plan ") + kConfig + flags).out;
  EXPECT_NE(table.find("model.layers.5.self_attn.k_proj.weight"), std::string::npos);
  EXPECT_NE(table.find("[2048, 5376]"), std::string::npos);
  EXPECT_EQ(table.find("model.layers.5.self_attn.v_proj"), std::string::npos) << "keys of this layer are its values";
  EXPECT_NE(table.rfind("all"), std::string::npos);
  EXPECT_NE(table.find("30697345280", table.rfind("all")), std::string::npos);
}

TEST_F(Plan, RefusesToListParametersWhereItCannot) {
  for (const auto& [flags, reason] :
       {std::pair("--tensors --svg", "--svg excludes --tensors"),
        {"--tensors --all", "--tensors lists the parameters of one layout; give --json with --all, or leave"}}) {
    EXPECT_NE(work.tutti(std::string("plan ") + kConfig + flags).status, 0) << flags;
    EXPECT_NE(work.read("err.txt").find(reason), std::string::npos) << flags << "\n" << work.read("err.txt");
  }
}

TEST_F(Plan, ListsEveryMesh) {
  const Output made = work.tutti(std::string("plan ") + kConfig + "--json --all -n 6");
  ASSERT_EQ(made.status, 0) << work.read("err.txt");
  std::vector<std::pair<int, double>> meshes;
  std::vector<int> refused;
  for (size_t at = 0; at < made.out.size();) {
    const size_t end = made.out.find('\n', at);
    const nlohmann::json line = nlohmann::json::parse(made.out.substr(at, end - at));
    if (line.contains("refusal")) refused.push_back(line["tp"].get<int>());
    else meshes.emplace_back(line["dp_shard"].get<int>(), line["peak_bytes"].get<double>());
    at = end + 1;
  }
  ASSERT_EQ(meshes.size(), 4u);
  EXPECT_EQ(refused, (std::vector<int>{2, 3, 6})) << "of tensor parallelism";
  for (size_t i = 1; i < meshes.size(); ++i) EXPECT_GE(meshes[i].second, meshes[i - 1].second);
  EXPECT_EQ(meshes.front().first, 6);
  EXPECT_EQ(meshes.back().first, 1);
  const Output picture = work.tutti(std::string("plan ") + kConfig + "--svg --all -n 6");
  EXPECT_EQ(picture.out.rfind("<svg", 0), 0u);
  EXPECT_NE(picture.out.find("dp_replicate 2 x dp_shard 3"), std::string::npos);
}

TEST_F(Plan, ListsMeshesOfRanksThatDivideTheModel) {
  const Output made =
      work.tutti(std::string("plan ") + kConfig +
                 "--model.flavor=quickstart-tp4 --data.sequence_length=256 --numerics.token_grain=64 --all -n 8");
  ASSERT_EQ(made.status, 0) << work.read("err.txt");
  for (const char* mesh : {"dp_replicate 2 x dp_shard 2 x tp 2", "dp_shard 2 x tp 4", "dp_shard 8"})
    EXPECT_NE(made.out.find(std::string("\n") + mesh + "  "), std::string::npos) << made.out;
  EXPECT_NE(
      made.out.find(
          "\ntp 8                                            not possible: parallelism.tensor_parallel_degree = 8: "),
      std::string::npos)
      << made.out;
}

TEST_F(Plan, ListsMeshesOfRanksThatDivideExperts) {
  const Output made =
      work.tutti(std::string("plan ") + kConfig + "--model.flavor=tiny_moe-ep8 --data.sequence_length=256 --all -n 4");
  ASSERT_EQ(made.status, 0) << work.read("err.txt");
  for (const char* mesh : {"dp_shard 4 x ep 4", "dp_replicate 2 x dp_shard 2 x ep 2", "dp_shard 4"})
    EXPECT_NE(("\n" + made.out).find(std::string("\n") + mesh + "  "), std::string::npos) << made.out;
}

// A rank of two sends half of each sum over both, and gathers half of what is cut: what the counter of a training step
// counts.
TEST_F(Plan, KnowsWhatTensorParallelRanksExchange) {
  const auto sent = [&](const std::string& flags) {
    return plan(
               "--model.flavor=quickstart-tp4 --data.sequence_length=256 --numerics.token_grain=64 "
               "--parallelism.tensor_parallel_degree=" +
               flags)["sent_activation_bytes"]
        .get<double>();
  };
  const double two = sent("2 -n 2");
  EXPECT_GT(two, 0);
  EXPECT_EQ(sent("2 -n 4"), two / 2) << "half of the virtual shards";
  EXPECT_NEAR(sent("4 -n 4"), 1.5 * two, 0.01 * two) << "three quarters of each sum in the place of a half";
}

TEST_F(Plan, SaysWhatIsWrong) {
  const auto error = [&](const std::string& flags) {
    EXPECT_EQ(work.tutti(std::string("plan ") + kConfig + flags).status, 2);
    return work.read("err.txt");
  };
  EXPECT_NE(error("-n 16").find("16 data-parallel ranks cannot share 8 virtual shards"), std::string::npos)
      << work.read("err.txt");
  EXPECT_NE(error("-n 4 --ranks-per-host 8").find("--ranks-per-host 8 is more than the 4 ranks of -n"),
            std::string::npos);
  EXPECT_NE(error("-n 4 --parallelism.data_parallel_shard_degree=3").find("do not fit 4 ranks"), std::string::npos)
      << work.read("err.txt");
  EXPECT_NE(
      error("-n 2 --parallelism.tensor_parallel_degree=2")
          .find("tensor parallelism over 2 ranks would not have the bits of one rank; expected a power of two up to 1"),
      std::string::npos)
      << work.read("err.txt");
  EXPECT_NE(error("-n 4 --parallelism.data_parallel_shard_degree=4 --parallelism.fsdp_reshard_after_forward=2")
                .find("4 ranks read one copy of the parameters in the memory of their host"),
            std::string::npos)
      << work.read("err.txt");
  EXPECT_NE(error("-n 4 --parallelism.data_parallel_shard_degree=4 --parallelism.fsdp_reshard_after_forward=3")
                .find("expected 1 (never), 2, 4 (default)"),
            std::string::npos)
      << work.read("err.txt");
  EXPECT_NE(error("-n 4 --parallelism.fsdp_reshard_after_forward=0")
                .find("expected one of: default, always, never, or a whole number above 0, found '0'"),
            std::string::npos)
      << work.read("err.txt");
  EXPECT_NE(error("--model.flavor=none").find("none"), std::string::npos);
}

TEST_F(Plan, ATrainingThatCannotFitIsRefusedWithThePlan) {
  ASSERT_EQ(
      work.tutti(std::string("train ") + kConfig + "--data corpus.jsonl --model.flavor=32B --run.name=run").status, 2);
  EXPECT_NE(work.read("err.txt").find("GiB a rank for parameters"), std::string::npos) << work.read("err.txt");
}

}  // namespace
}  // namespace tutti::test
