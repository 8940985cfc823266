// A run folder holds all that its text takes: with no flags, `tutti generate` writes sample.txt again.
#include <gtest/gtest.h>

#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace {

struct GenerateCase {
  const char* name;
  const char* flags;         // of the training
  const char* markers = "";  // contents of tokenizer_config.json; "": as write_tiny_run makes it
};

void PrintTo(const GenerateCase& c, std::ostream* out) { *out << c.name; }

struct RunFolderText : testing::Test {
  RunFolderText() { write_tiny_run(work); }
  Workplace work;
};
struct Generate : RunFolderText, testing::WithParamInterface<GenerateCase> {};

TEST_P(Generate, WritesTheSampleOfTheRun) {
  if (*GetParam().markers) work.write("tokenizer/tokenizer_config.json", GetParam().markers);
  ASSERT_EQ(
      work.tutti(std::string("train run.toml --quiet --run.name=run --validation.sample_tokens=40 ") + GetParam().flags)
          .status,
      0)
      << work.read("err.txt");
  const std::string sample = work.read("runs/run/sample.txt");
  ASSERT_TRUE(sample.starts_with("the old river")) << sample;
  for (const char* gone : {"data", "tokenizer", "run.toml"}) std::filesystem::remove_all(work.folder() / gone);
  std::filesystem::rename(work.folder() / "runs/run", work.folder() / "kept");
  for (const char* flags : {"", " --seed 42 --max-tokens 40 --prompt 'the old river'"}) {
    const Output text = work.tutti(std::string("generate kept") + flags);
    EXPECT_EQ(text.status, 0) << text.err;
    EXPECT_EQ(text.out, sample) << flags;
  }
  EXPECT_NE(work.tutti("generate kept --seed 43").out, sample);
}

INSTANTIATE_TEST_SUITE_P(
    , Generate,
    testing::Values(GenerateCase{"Bytes", "--data.tokenizer=byte"}, GenerateCase{"Learned", ""},
                    GenerateCase{"MarkersAsText", "--data.tokenizer=tokenizer",
                                 R"({"bos_token": "<|begin|>", "eos_token": "<|end|>"})"},
                    GenerateCase{"MarkersAsObjects", "--data.tokenizer=tokenizer",
                                 R"({"bos_token": {"content": "<|begin|>"}, "eos_token": {"content": "<|end|>"}})"},
                    GenerateCase{"NoBos", "--data.tokenizer=tokenizer/tokenizer.json",
                                 R"({"bos_token": null, "eos_token": "<|end|>"})"},
                    GenerateCase{"HalfPrecision", "--training.mixed_precision_param=bfloat16"},
                    GenerateCase{"OtherGrain", "--numerics.token_grain=8"},
                    GenerateCase{"TwoRanks", "-n 2 --data.tokenizer=tokenizer"}),
    [](const auto& info) { return info.param.name; });

// Ranks that divide the model write the text of one, whatever divided it in training.
TEST_F(RunFolderText, RanksThatDivideTheModelWriteTheSameText) {
  ASSERT_EQ(work.tutti("train run.toml --quiet --run.name=dense --model.flavor=tiny-tp4 --validation.sample_tokens=40")
                .status,
            0)
      << work.read("err.txt");
  ASSERT_EQ(
      work.tutti("train run.toml --quiet --run.name=experts --model.flavor=tiny_moe-tp4 --validation.sample_tokens=40")
          .status,
      0)
      << work.read("err.txt");
  const std::pair<const char*, const char*> cases[] = {{"dense", "-n 2"},
                                                       {"dense", "-n 4 --divide-products"},
                                                       {"experts", "-n 2"},
                                                       {"experts", "-n 4 --divide-experts"},
                                                       {"experts", "-n 4 --divide-experts --divide-products"}};
  for (const auto& [run, flags] : cases) {
    const Output text = work.tutti(std::string("generate runs/") + run + " " + flags);
    EXPECT_EQ(text.status, 0) << flags << text.err;
    EXPECT_EQ(text.out, work.read(std::string("runs/") + run + "/sample.txt")) << flags;
  }
  const std::pair<const char*, const char*> refused[] = {
      {"dense -n 8",
       "tensor parallelism over 8 ranks would not have the bits of one rank; expected a power of two up to 4"},
      {"dense -n 3", "expected a power of two up to 4"},
      {"dense -n 2 --divide-experts", "generate: the model qwen3 tiny-tp4 has no experts for 2 ranks to divide"},
      {"experts -n 3 --divide-experts",
       "generate: 3 ranks cannot divide the 8 experts of 'model.layers.0.mlp'; expected a power of two that divides "
       "them"}};
  for (const auto& [flags, message] : refused) {
    const Output text = work.tutti(std::string("generate runs/") + flags);
    EXPECT_EQ(text.status, 2) << flags;
    EXPECT_NE(text.err.find(message), std::string::npos) << flags << text.err;
    EXPECT_EQ(text.err.find(message), text.err.rfind(message)) << "said once: " << text.err;
  }
}

// A folder in which a run with another tokenizer broke off before its first checkpoint.
TEST_F(RunFolderText, NothingOfAnEarlierTokenizerStays) {
  ASSERT_EQ(work.tutti("train run.toml --quiet --run.name=run --data.tokenizer=tokenizer").status, 0)
      << work.read("err.txt");
  std::filesystem::remove_all(work.folder() / "runs/run/checkpoint");
  ASSERT_EQ(work.tutti("train run.toml --quiet --run.name=run --data.tokenizer=byte").status, 0)
      << work.read("err.txt");
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "runs/run/tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(work.folder() / "runs/run/tokenizer_config.json"));
  EXPECT_EQ(work.tutti("generate runs/run").out, work.read("runs/run/sample.txt"));
}

TEST_F(RunFolderText, AnotherTokenizerInTheRunFolderIsRefused) {
  ASSERT_EQ(work.tutti("train run.toml --quiet --run.name=run --data.tokenizer=tokenizer").status, 0)
      << work.read("err.txt");
  std::filesystem::remove(work.folder() / "runs/run/tokenizer_config.json");
  const Output text = work.tutti("generate runs/run");
  EXPECT_EQ(text.status, 1);
  EXPECT_NE(
      text.err.find("runs/run/tokenizer.json is not what the run was trained with: BOS was token 290 and is none"),
      std::string::npos)
      << text.err;
}

}  // namespace
}  // namespace tutti::test
