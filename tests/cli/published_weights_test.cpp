// Runs that begin with the weights of a published model: `checkpoint.initial_load_path` of its folder, its files or
// their index.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace {

constexpr const char* kConfigOfTiny =
    R"({"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 16, "intermediate_size": 64, "vocab_size": 320, "tie_word_embeddings": true, "rms_norm_eps": 1e-06, "rope_theta": ROPE_THETA,
  "rope_scaling": null, "hidden_act": "silu", "torch_dtype": "bfloat16", "eos_token_id": [1, 2]})";

std::string config_with(const std::string& rope_theta) {
  std::string text = kConfigOfTiny;
  return text.replace(text.find("ROPE_THETA"), 10, rope_theta);
}

struct PublishedWeights : testing::Test {
  PublishedWeights() {
    write_tiny_run(work);
    EXPECT_EQ(work.tutti("train run.toml --training.steps=2 --run.name=first").status, 0);
    std::filesystem::create_directory(work.folder() / "published");
    EXPECT_EQ(work.tutti("checkpoint export runs/first published/model.safetensors").status, 0);
  }
  Output train(const std::string& name, const std::string& from, const std::string& flags = "") const {
    return work.tutti(fmt::format(
        "train run.toml --training.steps=2 --run.name={} --checkpoint.initial_load_path={} {}", name, from, flags));
  }
  const Workplace work;
};

const std::string kNote =
    "has no config.json beside its weights: only names and sizes of tensors were compared with the model, not what is "
    "computed with them";

TEST_F(PublishedWeights, StartARunWhoseFlavorIsWhatConfigJsonSays) {
  work.write("published/config.json", config_with("1000000"));
  const Output from_folder = train("folder", "published"), from_file = train("file", "published/model.safetensors"),
               from_run = train("run", "runs/first");
  for (const Output& output : {from_folder, from_file, from_run}) {
    EXPECT_EQ(output.status, 0) << output.err;
    EXPECT_EQ(output.err.find("config.json"), std::string::npos) << output.err;
  }
  EXPECT_EQ(work.metric("folder", "loss_hex"), work.metric("run", "loss_hex"));
  EXPECT_EQ(work.metric("file", "loss_hex"), work.metric("run", "loss_hex"));
}

TEST_F(PublishedWeights, AreRefusedWhereConfigJsonSaysOtherwiseAndNothingIsTrained) {
  work.write("published/config.json", config_with("10000"));
  for (const auto& [name, from, flags] : {std::tuple{"folder", "published", ""},
                                          {"file", "published/model.safetensors", ""},
                                          {"ranks", "published", "-n 2 --parallelism.data_parallel_shard_degree=2"}}) {
    const Output output = train(name, from, flags);
    EXPECT_EQ(output.status, 2) << output.err;
    EXPECT_NE(output.err.find("published/config.json describes another model than qwen3 tiny, which is unchanged:\n  "
                              "rope_theta: 10000, the model has 1000000\n"),
              std::string::npos)
        << output.err;
    EXPECT_FALSE(std::filesystem::exists(work.folder() / "runs" / name / "metrics.jsonl")) << name;
    EXPECT_FALSE(std::filesystem::exists(work.folder() / "runs" / name / "checkpoint/step-2")) << name;
  }
}

TEST_F(PublishedWeights, LoadWithoutConfigJsonAndTheRunSaysSoOnce) {
  for (const auto& [name, flags] : {std::pair{"one", ""}, {"two", "-n 2"}}) {
    const Output output = train(name, "published", flags);
    EXPECT_EQ(output.status, 0) << output.err;
    const size_t at = output.err.find("published " + kNote);
    EXPECT_NE(at, std::string::npos) << output.err;
    EXPECT_EQ(output.err.find(kNote, at + 20), std::string::npos) << output.err;
  }
}

}  // namespace
}  // namespace tutti::test
