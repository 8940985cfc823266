// `tutti bench dlrm`: both modes, under the documented keys.
#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "tests/cli/support/program.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

const std::string kSmall = "bench dlrm --tables 3 --rows 50 --dim 8 --bottom 8 --top 8 --batch 32 --steps 3 -t 2 ";

TEST(BenchDlrm, TrainsInBothModes) {
  Workplace work;
  const Output output = work.tutti(kSmall + "--json");
  EXPECT_EQ(output.status, 0) << output.err << output.out;
  std::string modes;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) {
    const JsonDocument document(line, {.name = "row"});
    const JsonValue row = document.top();
    modes += row.at("mode").string() + " ";
    EXPECT_EQ(row.at("threads").whole(), 2) << line;
    EXPECT_EQ(row.at("examples").whole(), 32) << line;
    // 10 + 22 + 50 rows of 8, and the layers 13-8-8 and 14-8-1.
    EXPECT_EQ(row.at("parameters").whole(), 82 * 8 + 13 * 8 + 8 + 8 * 8 + 8 + 14 * 8 + 8 + 8 + 1) << line;
    for (const char* key :
         {"min_us", "median_us", "look_up_us", "dense_us", "tables_us", "examples_per_s", "first_loss", "last_loss"})
      EXPECT_GT(row.at(key).number(), 0) << key << " in " << line;
  }
  EXPECT_EQ(modes, "eager compiled ");
}

TEST(BenchDlrm, RefusesWhatDoesNotFit) {
  Workplace work;
  const auto refusal = [&](const std::string& flags) {
    const Output output = work.tutti(kSmall + flags);
    EXPECT_NE(output.status, 0) << output.out;
    return output.err;
  };
  EXPECT_NE(refusal("--shards 3").find("32 examples over 3 virtual shards; expected a multiple"), std::string::npos);
  EXPECT_NE(refusal("--mode fast").find("mode 'fast'; expected eager, compiled or both"), std::string::npos);
}

}  // namespace
}  // namespace tutti::test
