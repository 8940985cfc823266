// --quantize: commands over published models and runs whose linear layers become codes.
#include <gtest/gtest.h>

#include "tests/cli/support/published.h"
#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace {

struct QuantizedByCommand : ::testing::Test {
  QuantizedByCommand() {
    write_tiny_run(work);
    write_published_decoder(work);
    work.write("text.txt", "the old river runs to the sea, and the sea is old");
  }
  double bits_of(const std::string& flags) const {
    const Output said = work.tutti("eval published --data text.txt --json " + flags);
    EXPECT_EQ(said.status, 0) << said.err;
    const std::string key = "\"bits_per_byte\":";
    const size_t at = said.out.find(key);
    return at == std::string::npos ? 0 : std::stod(said.out.substr(at + key.size()));
  }
  const Workplace work;
};

TEST_F(QuantizedByCommand, EveryKindIsMeasured) {
  const double plain = bits_of("");
  for (const char* kind : {"int8", "fp8", "int8_static --calibration text.txt", "fp8_static --calibration text.txt",
                           "int8_weight_only", "int4_weight_only --quantize-group 8"}) {
    const double found = bits_of(std::string("--quantize ") + kind);
    EXPECT_NEAR(found / plain, 1, 0.05) << kind;
    EXPECT_NE(found, plain) << kind;
  }
}

TEST_F(QuantizedByCommand, TextsAreTheSameCompiledOrNot) {
  const std::string flags = "generate published --prompt 'the old river' --temperature 0 --max-tokens 8 --quantize ";
  for (const char* kind : {"int8", "fp8", "int4_weight_only --quantize-group 8"}) {
    const Output one = work.tutti(flags + kind), compiled = work.tutti(flags + kind + " --compile");
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_TRUE(one.out.starts_with("the old river")) << one.out;
    EXPECT_EQ(compiled.out, one.out) << compiled.err;
    EXPECT_NE(one.err.find("the largest relative error of weights is"), std::string::npos) << one.err;
  }
  const Output report =
      work.tutti("eval published --data text.txt --quantize int8 --calibration text.txt --quantize-report");
  EXPECT_NE(report.err.find("model.layers.0.self_attn.q_proj"), std::string::npos) << report.err;
  EXPECT_NE(report.err.find(" result 0."), std::string::npos) << report.err;
  EXPECT_NE(report.err.find("the largest relative error of results is"), std::string::npos) << report.err;
}

// A folder of codes is read as any other, and computes what --quantize does.
TEST_F(QuantizedByCommand, FoldersOfCodesComputeTheSame) {
  const std::string ask = " --prompt 'the old river' --temperature 0 --max-tokens 12";
  const std::string score = " --data text.txt --json";
  for (const std::string kind :
       {"int8", "fp8", "int8_static --calibration text.txt", "fp8_static --calibration text.txt", "int8_weight_only",
        "int4_weight_only --quantize-group 8"}) {
    const std::string name = kind.substr(0, kind.find(' '));
    const Output written = work.tutti("convert published " + name + " --quantize " + kind);
    ASSERT_EQ(written.status, 0) << written.err;
    EXPECT_NE(written.err.find(" as " + name + ": "), std::string::npos) << written.err;
    const Output saved = work.tutti("generate " + name + ask),
                 made = work.tutti("generate published" + ask + " --quantize " + kind);
    EXPECT_EQ(saved.status, 0) << saved.err;
    EXPECT_EQ(saved.out, made.out) << name;
    EXPECT_EQ(work.tutti("generate " + name + ask + " --compile").out, made.out) << name;
    const auto numbers = [](const std::string& line) {
      const size_t at = line.find("\"log_probability\"");
      return at == std::string::npos ? line : line.substr(at, line.find(',', at) - at);
    };
    const Output of_saved = work.tutti("eval " + name + score),
                 of_made = work.tutti("eval published" + score + " --quantize " + kind);
    ASSERT_EQ(of_saved.status, 0) << of_saved.err;
    EXPECT_EQ(numbers(of_saved.out), numbers(of_made.out)) << name;
  }
  const std::string list = work.tutti("checkpoint ls int8_static").out;
  EXPECT_NE(list.find("model.layers.0.self_attn.q_proj.weight.int8_static.x_zero_point i32 [1]"), std::string::npos)
      << list;
  EXPECT_EQ(list.find("q_proj.weight f32"), std::string::npos) << list;
}

// Ranks divide codes, those of a run and of a folder, too.
TEST_F(QuantizedByCommand, RanksWriteTheSameTexts) {
  const std::string ask = " --prompt 'the old river' --temperature 0 --max-tokens 12 --quantize ";
  for (const std::string kind : {"int8", "fp8_static --calibration text.txt", "int4_weight_only --quantize-group 8"}) {
    const Output one = work.tutti("generate published" + ask + kind);
    EXPECT_EQ(one.status, 0) << one.err;
    for (const char* how : {" -n 2", " -n 2 --compile"}) {
      const Output ranks = work.tutti("generate published" + ask + kind + how);
      EXPECT_EQ(ranks.status, 0) << ranks.err;
      EXPECT_EQ(ranks.out, one.out) << kind << how;
    }
  }
  ASSERT_EQ(work.tutti("convert published codes --quantize int8").status, 0);
  const std::string saved = "generate codes --prompt 'the old river' --temperature 0 --max-tokens 12";
  EXPECT_EQ(work.tutti(saved + " -n 2").out, work.tutti("generate published" + ask + "int8").out);
}

TEST_F(QuantizedByCommand, KeysAndValuesMayBeCodesToo) {
  const std::string ask = "generate published --prompt 'the old river' --temperature 0 --max-tokens 12 --quantize int8";
  const std::string score = "eval published --data text.txt --json --quantize int8";
  for (const std::string cache : {" --kv-cache-dtype int8", " --kv-cache-dtype fp8_e4m3"}) {
    const Output one = work.tutti(ask + cache);
    EXPECT_EQ(one.status, 0) << one.err;
    EXPECT_TRUE(one.out.starts_with("the old river")) << one.out;
    for (const char* how : {" --compile", " -n 2", " -n 2 --compile"}) {
      const Output other = work.tutti(ask + cache + how);
      EXPECT_EQ(other.out, one.out) << cache << how << other.err;
    }
    EXPECT_EQ(work.tutti(ask + cache, "TUTTI_THREADS=3").out, one.out) << cache;
    const Output scored = work.tutti(score + cache);
    EXPECT_EQ(scored.status, 0) << scored.err;
    EXPECT_NE(scored.out, work.tutti(score).out) << cache;
  }
}

TEST_F(QuantizedByCommand, FoldersOfCodesAreWhatTheyAre) {
  ASSERT_EQ(work.tutti("convert published codes --quantize int8").status, 0);
  for (const auto& [flags, message] :
       {std::pair{"generate codes --prompt a --quantize int8", "no linear layer of the model has a weight of numbers"},
        {"generate codes --prompt a --quantized", "has no weights that can stay quantized"},
        {"convert codes again", "as codes (int8); convert the model that it was made from"},
        {"convert published codes.gguf --quantize int8", "--quantize writes a folder"},
        {"convert published codes --quantize int8", "codes exists; name a new folder"},
        {"convert published more --quantize int8_static", "needs --calibration FILE"}}) {
    const Output refused = work.tutti(flags);
    EXPECT_NE(refused.status, 0) << flags;
    EXPECT_NE(refused.err.find(message), std::string::npos) << flags << ": " << refused.err;
  }
}

// Encoders, too: each line of the files of calibration is a text.
TEST_F(QuantizedByCommand, EncodersEmbedWithCodes) {
  write_published_encoder(work);
  work.write("lines.txt", "a text\n\nanother text\nthe sea\n");
  const std::string embed = "embed encoder 'a text' 'another text'";
  const Output plain = work.tutti(embed);
  for (const std::string kind :
       {"int8", "fp8", "int8_static --calibration lines.txt", "fp8_static --calibration lines.txt", "int8_weight_only",
        "int4_weight_only --quantize-group 8"}) {
    const Output coded = work.tutti(embed + " --quantize-report --quantize " + kind);
    EXPECT_EQ(coded.status, 0) << coded.err;
    EXPECT_NE(coded.out, plain.out) << kind;
    EXPECT_NE(coded.err.find("encoder.layer.0.attention.self.query"), std::string::npos) << coded.err;
    EXPECT_EQ(work.tutti(embed + " --quantize " + kind, "TUTTI_THREADS=3").out, coded.out) << kind;
  }
  for (const auto& [flags, message] : {std::pair{" --quantize int8_static", "needs --calibration FILE"},
                                       {" --quantize int8 --calibration nowhere.txt", "nowhere.txt"},
                                       {" --quantize-report", "--quantize-report requires --quantize"}}) {
    const Output refused = work.tutti(embed + flags);
    EXPECT_NE(refused.status, 0) << flags;
    EXPECT_NE(refused.err.find(message), std::string::npos) << flags << ": " << refused.err;
  }
}

TEST_F(QuantizedByCommand, SaysWhatItNeeds) {
  for (const auto& [flags, message] :
       {std::pair{"generate published --prompt a --quantize int8_static",
                  "--quantize int8_static needs --calibration FILE"},
        {"generate published --prompt a --quantize int3", "int3"},
        {"generate published --prompt a --calibration text.txt", "--calibration requires --quantize"},
        {"generate published --prompt a --quantize int8 --quantized", "give one of them"},
        {"eval published --data text.txt --quantize int8 --quantized", "give one of them"},
        {"generate published --prompt a --quantize int4_weight_only --quantize-group 24", "are not whole groups of 24"},
        {"generate published --prompt a --quantize int8_static --calibration nowhere.txt", "nowhere.txt"}}) {
    const Output refused = work.tutti(flags);
    EXPECT_NE(refused.status, 0) << flags;
    EXPECT_NE(refused.err.find(message), std::string::npos) << flags << ": " << refused.err;
  }
}

}  // namespace
}  // namespace tutti::test
