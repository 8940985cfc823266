// `tutti bench codes`: every kind on several threads, under the documented keys.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/support/program.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

TEST(BenchCodes, MultipliesEveryKindAndAttendsInTwoKernels) {
  Workplace work;
  const Output output =
      work.tutti("bench codes --small --m 1 7 --n 33 --k 96 --length 20 --heads 2 --head-dim 8 -t 2 --json");
  ASSERT_EQ(output.status, 0) << output.err << output.out;
  std::vector<std::string> kinds;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) {
    const JsonDocument document(line, {.name = "row"});
    const JsonValue row = document.top();
    kinds.push_back(row.at("kind").string());
    EXPECT_EQ(row.at("threads").whole(), 2) << line;
    EXPECT_LT(row.at("error").number(), 0.1) << line;
    if (kinds.back().starts_with("attention")) {
      EXPECT_EQ(row.at("kernels").whole(), 2) << line;
      EXPECT_TRUE(row.at("same_bits").boolean()) << line;
      for (const char* key : {"merged_us", "apart_us", "f32_us"}) EXPECT_GT(row.at(key).number(), 0) << line;
      continue;
    }
    EXPECT_EQ(row.at("k").whole(), 96) << line;
    for (const char* key : {"m", "min_us", "median_us", "gops", "read_share", "f32_us", "ratio"})
      EXPECT_GT(row.at(key).number(), 0) << key << " in " << line;
  }
  EXPECT_EQ(kinds,
            (std::vector<std::string>{"int8", "int8", "fp8", "fp8", "int8_weight_only", "int8_weight_only",
                                      "int4_weight_only", "int4_weight_only", "attention_int8", "attention_fp8"}));
}

TEST(BenchCodes, SaysWhatDoesNotFit) {
  Workplace work;
  const Output odd = work.tutti("bench codes --k 40");
  EXPECT_EQ(odd.status, 2);
  EXPECT_NE(odd.err.find("k is 40; expected a multiple of 32"), std::string::npos) << odd.err;
}

}  // namespace
}  // namespace tutti::test
