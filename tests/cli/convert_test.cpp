// `tutti convert`: published models in another format.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFamilies = TUTTI_SOURCE_DIR "/tests/models/families";

TEST(Convert, WritesAGgufFileAndAFolderOfIt) {
  const Workplace work;
  const Output there = work.tutti(fmt::format("convert {}/qwen3_moe model.gguf", kFamilies));
  EXPECT_EQ(there.status, 0) << there.err;
  EXPECT_EQ(there.out, fmt::format("{}/qwen3_moe (hf, 0.0 MB) -> model.gguf (gguf, 0.0 MB, 1 file): 39 tensors, 9663 "
                                   "parameters\n",
                                   kFamilies));
  EXPECT_EQ(there.err, fmt::format("The file has no vocabulary: {}/qwen3_moe has no tokenizer.json.\n", kFamilies));
  const Output back = work.tutti("convert model.gguf folder --json");
  EXPECT_EQ(back.status, 0) << back.err;
  EXPECT_EQ(back.out,
            "{\"source\":\"model.gguf\",\"target\":\"folder\",\"model\":\"qwen3 model.gguf\",\"from\":\"gguf\",\"to\":"
            "\"hf\",\"tensors\":75,\"parameters\":9663,\"source_nbytes\":20122,\"target_nbytes\":19326,\"files\":1,"
            "\"notes\":[\"The folder has no tokenizer, as the source has none.\"]}\n");
  const std::string list = work.tutti("checkpoint ls folder --digest").out;
  EXPECT_EQ(list, work.tutti(fmt::format("checkpoint ls {}/qwen3_moe --digest", kFamilies)).out);
}

TEST(Convert, TakesFormatTypeAndSizeOfFiles) {
  const Workplace work;
  EXPECT_EQ(work.tutti(fmt::format("convert {}/llama model --format gguf --dtype f16", kFamilies)).status, 0);
  EXPECT_NE(work.tutti("checkpoint ls model").out.find("blk.0.attn_q.weight f16 "), std::string::npos);
  EXPECT_EQ(work.tutti("convert model parts.gguf --format hf --dtype f32 --shard-size 1e-5").status, 0);
  EXPECT_TRUE(fs::exists(work.folder() / "parts.gguf/model.safetensors.index.json"));
  EXPECT_NE(work.tutti("checkpoint ls parts.gguf").out.find("lm_head.weight f32 "), std::string::npos);
}

TEST(Convert, SaysWhichMatricesHaveAnotherFormat) {
  const Workplace work;
  const Output output = work.tutti(fmt::format("convert {}/llama model.gguf --dtype q4_k_m", kFamilies));
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_NE(output.err.find("20 of the matrices are F16 instead of Q4_K, as rows are no whole blocks of 256: "),
            std::string::npos)
      << output.err;
  const std::string list = work.tutti("checkpoint ls model.gguf").out;
  EXPECT_NE(list.find("blk.0.attn_q.weight f16 "), std::string::npos) << list;
}

TEST(Convert, RefusesWrongInputAndLeavesNothing) {
  const Workplace work;
  for (const char* folder : {"empty", "broken"}) fs::create_directory(work.folder() / folder);
  work.write("empty/config.json", "{}");
  work.write("broken/config.json", "{");
  work.write("broken/model.safetensors", "");
  work.write("text.gguf", "no model");
  work.write("there.gguf", "keep");
  const std::string llama = fmt::format("{}/llama", kFamilies);
  const std::tuple<const char*, int, std::string, const char*> cases[] = {
      {"NoSource", 1, "convert nowhere new", "nowhere"},
      {"NoWeights", 2, "convert empty new", "the folder empty holds no model"},
      {"NoModel", 1, "convert text.gguf new", "text.gguf"},
      {"Broken", 1, "convert broken new", "broken"},
      {"Encoder", 2, fmt::format("convert {}/bert new", kFamilies), "model_type: \"bert\""},
      {"Window", 2, fmt::format("convert {}/mistral-window new.gguf", kFamilies), "window of keys: 11, written as 0"},
      {"ThereAlready", 2, "convert " + llama + " there.gguf", "there.gguf exists; name a new file"},
      {"FolderThereAlready", 2, "convert " + llama + " empty", "empty exists; name a new folder"},
      {"Blocks", 2, "convert " + llama + " new --dtype q8_0", "q8_0 is no type of safetensors files"},
      {"BlocksOfSeveralFormats", 2, "convert " + llama + " new --dtype q4_k_m",
       "q4_k_m is no type of safetensors files"},
      {"Type", 2, "convert " + llama + " new --dtype q3_k_m", "q3_k_m not in"},
      {"Format", 2, "convert " + llama + " new --format onnx", "onnx not in"},
      {"Size", 2, "convert " + llama + " new --shard-size 0", "--shard-size"},
      {"NoTarget", 2, "convert " + llama, "target is required"},
  };
  for (const auto& [name, status, arguments, message] : cases) {
    const Output output = work.tutti(arguments);
    EXPECT_EQ(output.status, status) << name << ": " << output.err;  // 1: what is there is damaged
    EXPECT_NE(output.err.find(message), std::string::npos) << name << ": " << output.err;
    EXPECT_EQ(output.out, "") << name;
  }
  EXPECT_EQ(work.read("there.gguf"), "keep");
  for (const fs::directory_entry& entry : fs::directory_iterator(work.folder())) {
    const std::string name = entry.path().filename().string();
    EXPECT_EQ(name.find("new"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace tutti::test
