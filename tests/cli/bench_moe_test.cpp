// `tutti bench moe`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchMoE, HoldsGroupedProductsAndLayersAgainstDenseOnes) {
  Workplace work;
  for (const char* dtype : {"f32", "bf16"}) {
    const Output output = work.tutti(std::string("bench moe --tokens 70 --dim 24 --hidden-dim 16 --experts 8 --top-k 3 --total-ms 1 --json --dtype ") + dtype);
    ASSERT_EQ(output.status, 0) << output.err;
    std::string cases;
    std::istringstream text(output.out);
    for (std::string line; std::getline(text, line);) {
      const auto row = nlohmann::json::parse(line);
      EXPECT_EQ(row.size(), 15u) << line;
      for (const char* key : {"what", "way", "tokens", "dim", "hidden_dim", "experts", "top_k", "dtype", "threads", "max_over_mean", "min_us", "median_us", "gflops", "rate", "verified"})
        EXPECT_TRUE(row.contains(key)) << key << " in " << line;
      EXPECT_EQ(row["verified"], true) << line;
      EXPECT_EQ(row["way"] == "dense", row["max_over_mean"] == 0) << line;
      cases += row["what"].get<std::string>() + " " + row["way"].get<std::string>() + ", ";
    }
    EXPECT_EQ(cases, "rows dense, rows equal, rows uneven, rows few, gradient dense, gradient equal, gradient uneven, gradient few, layer dense, layer equal, layer uneven, ");
  }
}

}  // namespace
}  // namespace tutti::test
