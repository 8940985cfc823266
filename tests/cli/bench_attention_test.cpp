// `tutti bench attention`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchAttention, HoldsAttentionAgainstTheComposite) {
  Workplace work;
  for (const char* problem : {"", " --key-heads 1 --window 9 --keys 80", " --full --dtype bf16"}) {
    const Output output =
        work.tutti(std::string("bench attention --batch 1 --heads 2 --length 70 --dim 16 --json") + problem);
    ASSERT_EQ(output.status, 0) << output.err;
    int lines = 0;
    std::istringstream text(output.out);
    for (std::string line; std::getline(text, line); ++lines) {
      const auto row = nlohmann::json::parse(line);
      EXPECT_EQ(row.size(), 13u);
      for (const char* key : {"op", "pass", "shape", "causal", "dtype", "threads", "min_us", "median_us", "gflops",
                              "peak_gflops", "gbps", "peak_mbytes", "verified"})
        EXPECT_TRUE(row.contains(key)) << key << " in " << line;
      EXPECT_EQ(row["verified"], true) << line;
    }
    EXPECT_EQ(lines, 4) << output.out;
  }
}

TEST(BenchAttention, SaysWhatDoesNotFit) {
  Workplace work;
  const Output output = work.tutti("bench attention --full --window 3");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("bench attention: a window of 3 keys needs causal attention; leave --full out"),
            std::string::npos)
      << output.err;
}

}  // namespace
}  // namespace tutti::test
