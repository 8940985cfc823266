// Texts of SmolLM2 with quantized weights, on every instruction set of this processor and several numbers of threads:
// all are the same.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/cli/support/program.h"
#include "tests/weights/support/published_models.h"

namespace tutti::test {

struct QuantizedKind {
  const char *name, *flags;  // of --quantize; "" keeps the blocks of the file
};
inline constexpr QuantizedKind kQuantizedKinds[] = {{"blocks", ""},
                                                    {"int8", "int8"},
                                                    {"fp8", "fp8"},
                                                    {"int8_static", "int8_static --calibration text.txt"},
                                                    {"fp8_static", "fp8_static --calibration text.txt"},
                                                    {"int8_weight_only", "int8_weight_only"},
                                                    {"int4_weight_only", "int4_weight_only"}};

// A test for each of them.
struct TextsOfEveryKind : ::testing::TestWithParam<QuantizedKind> {
  static constexpr const char* kModel = "smollm2-135m-instruct";
  const std::string file = tutti::testing::published_file(kModel, "SmolLM2-135M-Instruct.Q4_1.gguf");
  static std::string name_of(const ::testing::TestParamInfo<QuantizedKind>& info) { return info.param.name; }

  // `every_pair`: of instruction set and number of threads; otherwise each set and each number once.
  void expect_same_texts(int tokens, bool every_pair) const {
    const auto& [name, flags] = GetParam();
    const Workplace work;
    work.write("text.txt", "The old river runs to the sea. Whoever follows it for a day meets three mills.");
    const std::string source = "'" + file + "'";
    std::string asked = source + " --quantized";
    if (*flags != '\0') {
      const Output written = work.tutti("convert " + source + " " + name + " --quantize " + flags);
      ASSERT_EQ(written.status, 0) << written.err;
      asked = name;
    }
    asked = "generate " + asked + " --prompt 'The capital of France is' --temperature 0.8 --seed 3 --max-tokens " +
            std::to_string(tokens);
    std::string expected;
    for (const std::string level : {"avx2", "avx512", "avx512vnni", "avx512bf16"}) {
      const Output first = work.tutti(asked, "TUTTI_THREADS=1 TUTTI_CPU=" + level);
      if (first.status != 0) {
        EXPECT_NE(first.err.find("this processor has no"), std::string::npos) << first.err;
        continue;
      }
      if (expected.empty()) expected = first.out;
      EXPECT_EQ(first.out, expected) << level;
      if (!every_pair) continue;
      for (const char* threads : {"2", "4"})
        EXPECT_EQ(work.tutti(asked, std::string("TUTTI_THREADS=") + threads + " TUTTI_CPU=" + level).out, expected)
            << level << ", threads " << threads;
    }
    if (!every_pair) {
      EXPECT_EQ(work.tutti(asked, "TUTTI_THREADS=4").out, expected);
    }
    EXPECT_GT(expected.size(), static_cast<size_t>(tokens)) << expected;
    EXPECT_EQ(work.tutti(asked + " --compile").out, expected);
  }
};

}  // namespace tutti::test
