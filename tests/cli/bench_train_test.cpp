// `tutti bench train`.
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

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
    for (const char* key : {"model", "tokens", "threads", "mode", "min_us", "median_us", "shard_us", "norm_us", "optimizer_us", "tokens_per_s", "gflops", "peak_gflops", "peak_mbytes", "parameters", "first_loss", "last_loss"})
      EXPECT_TRUE(row.contains(key)) << key << " in " << line;
    EXPECT_EQ(row["tokens"], 32);
    EXPECT_GT(row["tokens_per_s"], 0);
    EXPECT_NEAR(row["first_loss"].get<double>(), std::log(2048), 0.5);  // random weights guess
    EXPECT_LT(row["last_loss"], row["first_loss"]);
    modes += row["mode"].get<std::string>() + " ";
  }
  EXPECT_EQ(modes, "eager compiled ");
}

TEST(BenchTrain, KnowsItsModels) {
  Workplace work;
  const Output output = work.tutti("bench train --model large");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("debugmodel"), std::string::npos) << output.err;
}

}  // namespace
}  // namespace tutti::test
