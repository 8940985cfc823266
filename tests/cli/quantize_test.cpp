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

TEST_F(QuantizedByCommand, SaysWhatItNeeds) {
  for (const auto& [flags, message] :
       {std::pair{"generate published --prompt a --quantize int8_static",
                  "--quantize int8_static needs --calibration FILE"},
        {"generate published --prompt a --quantize int3", "int3"},
        {"generate published --prompt a --calibration text.txt", "--calibration requires --quantize"},
        {"generate published --prompt a --quantize int8 --quantized", "give one of them"},
        {"eval published --data text.txt --quantize int8 --quantized", "give one of them"},
        {"generate published --prompt a --quantize int8 -n 2", "ranks cannot divide weights that --quantize makes"},
        {"generate published --prompt a --quantize int4_weight_only --quantize-group 24", "are not whole groups of 24"},
        {"generate published --prompt a --quantize int8_static --calibration nowhere.txt", "nowhere.txt"}}) {
    const Output refused = work.tutti(flags);
    EXPECT_NE(refused.status, 0) << flags;
    EXPECT_NE(refused.err.find(message), std::string::npos) << flags << ": " << refused.err;
  }
}

}  // namespace
}  // namespace tutti::test
