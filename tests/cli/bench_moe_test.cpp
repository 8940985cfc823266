// `tutti bench moe`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchMoE, HoldsGroupedProductsAndLayersAgainstDenseOnes) {
  Workplace work;
  for (const char* dtype : {"f32", "bf16"}) {
    const Output output = work.tutti(
        std::string(
            "bench moe --tokens 70 --dim 24 --hidden-dim 16 --experts 8 --top-k 3 --total-ms 1 --json --dtype ") +
        dtype);
    ASSERT_EQ(output.status, 0) << output.err;
    std::string cases;
    std::istringstream text(output.out);
    for (std::string line; std::getline(text, line);) {
      const auto row = nlohmann::json::parse(line);
      EXPECT_EQ(row.size(), 15u) << line;
      for (const char* key : {"what", "way", "tokens", "dim", "hidden_dim", "experts", "top_k", "dtype", "threads",
                              "max_over_mean", "min_us", "median_us", "gflops", "rate", "verified"})
        EXPECT_TRUE(row.contains(key)) << key << " in " << line;
      EXPECT_EQ(row["verified"], true) << line;
      EXPECT_EQ(row["way"] == "dense", row["max_over_mean"] == 0) << line;
      cases += row["what"].get<std::string>() + " " + row["way"].get<std::string>() + ", ";
    }
    EXPECT_EQ(cases,
              "rows dense, rows equal, rows uneven, rows few, gradient dense, gradient equal, gradient uneven, "
              "gradient few, layer dense, layer equal, layer uneven, ");
  }
}

TEST(BenchMoE, HoldsWaysToBringTokensToExpertsAgainstEachOther) {
  Workplace work;
  const Output output =
      work.tutti("bench moe --ranks 2,4 --tokens 128 --dim 24 --hidden-dim 16 --experts 8 --top-k 3 --steps 1 --json");
  ASSERT_EQ(output.status, 0) << output.out << output.err;
  std::string cases;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) {
    const auto row = nlohmann::json::parse(line);
    EXPECT_EQ(row.size(), 20u) << line;
    EXPECT_EQ(row["verified"], true) << line;
    const std::string way = row["way"];
    const bool is_shared = way == "direct_store" || way == "gather_on_read";
    EXPECT_EQ(row["barriers"], is_shared ? 5 : way == "local" ? 0 : 6) << line;
    EXPECT_EQ(row["copies"], way.starts_with("standard") ? 2 : 0) << line;
    EXPECT_EQ(row["host_reads"], way == "standard" ? 5 : way == "standard_exact" ? 6 : 0) << line;
    EXPECT_EQ(row["room_bytes"] > 0, is_shared) << line;
    EXPECT_EQ(row["sent_bytes"] > 0, way != "local") << line;
    cases += fmt::format("{} {} {}, ", row["ranks"].get<int>(), row["load"].get<std::string>(), way);
  }
  std::string expected;
  for (const int ranks : {2, 4}) {
    for (const char* load : {"even", "one"}) {
      for (const char* way : {"local", "standard", "standard_exact", "direct_store", "gather_on_read"})
        expected += fmt::format("{} {} {}, ", ranks, load, way);
    }
  }
  EXPECT_EQ(cases, expected);
}

}  // namespace
}  // namespace tutti::test
