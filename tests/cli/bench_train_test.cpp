// `tutti bench train`.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchTrain, HoldsCompiledStepsAgainstEagerOnes) {
  Workplace work;
  const Output output = work.tutti("bench train --model quickstart --rows 1 --sequence-length 32 --steps 1 --json");
  ASSERT_EQ(output.status, 0) << output.err;
  std::istringstream text(output.out);
  std::string modes;
  for (std::string line; std::getline(text, line);) {
    const auto row = nlohmann::json::parse(line);
    for (const char* key : {"model", "tokens", "threads", "mode", "min_us", "median_us", "shard_us", "norm_us",
                            "optimizer_us", "tokens_per_s", "gflops", "peak_gflops", "peak_mbytes", "rss_mbytes",
                            "peak_rss_mbytes", "dtype", "parameters", "first_loss", "last_loss"})
      EXPECT_TRUE(row.contains(key)) << key << " in " << line;
    EXPECT_EQ(row["tokens"], 32);
    EXPECT_GT(row["tokens_per_s"], 0);
    EXPECT_NEAR(row["first_loss"].get<double>(), std::log(2048), 0.5);  // random weights guess
    EXPECT_LT(row["last_loss"], row["first_loss"]);
    EXPECT_GT(row["rss_mbytes"], 1);
    EXPECT_GT(row["peak_rss_mbytes"],
              row["peak_mbytes"]);  // of the process, which holds more than what the allocator handed out
    modes += row["mode"].get<std::string>() + " ";
  }
  EXPECT_EQ(modes, "eager compiled ");
}

// 6 per parameter and token; of attention's two products, forward once and backward twice, half of the pairs of 4
// layers with 6 heads of 32.
TEST(BenchTrain, CountsHalfOfCausalAttention) {
  Workplace work;
  const Output output =
      work.tutti("bench train --model quickstart --rows 1 --sequence-length 32 --steps 1 --mode eager --json");
  ASSERT_EQ(output.status, 0) << output.err;
  const auto row = nlohmann::json::parse(output.out);
  const double per_token = row["gflops"].get<double>() * 1e9 / row["tokens_per_s"].get<double>();
  EXPECT_NEAR(per_token, 6.0 * 2017216 + 6.0 * 4 * 6 * 32 * 32, 10);
}

TEST(BenchTrain, TakesStepsInBf16InOneMode) {
  Workplace work;
  const Output output = work.tutti(
      "bench train --model quickstart --rows 1 --sequence-length 32 --steps 1 --dtype bf16 --mode compiled --json");
  ASSERT_EQ(output.status, 0) << output.err;
  const auto row = nlohmann::json::parse(output.out);  // one line
  EXPECT_EQ(row["mode"], "compiled");
  EXPECT_EQ(row["dtype"], "bf16");
  EXPECT_EQ(row["parameters"], 2017216);
  EXPECT_LT(row["last_loss"], row["first_loss"]);
}

TEST(BenchTrain, KnowsItsDtypesAndModes) {
  Workplace work;
  for (const auto& [flags, words] : {std::pair{"--dtype f16", "dtype f16; expected f32 or bf16"},
                                     {"--mode traced", "mode 'traced'; expected eager, compiled or both"}}) {
    const Output output = work.tutti(std::string("bench train --model quickstart ") + flags);
    EXPECT_EQ(output.status, 2) << output.err;
    EXPECT_NE(output.err.find(words), std::string::npos) << output.err;
  }
}

TEST(BenchTrain, KnowsItsModels) {
  Workplace work;
  const Output output = work.tutti("bench train --model large");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("debugmodel"), std::string::npos) << output.err;
}

}  // namespace
}  // namespace tutti::test
