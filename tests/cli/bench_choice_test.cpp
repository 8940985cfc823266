// `tutti bench choice`, and what the program says about a malformed TUTTI_GEMM_CHOICE.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchChoice, CountsPredicateCalls) {
  Workplace work;
  const Output output = work.tutti("bench choice --json");
  ASSERT_EQ(output.status, 0) << output.err;
  std::vector<nlohmann::json> lines;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 4u) << output.out;
  for (const auto& line : lines) {
    EXPECT_EQ(line.size(), 9u);
    for (const char* key :
         {"op", "mode", "call", "candidates", "predicate_calls", "left", "min_ms", "median_ms", "verified"})
      EXPECT_TRUE(line.contains(key)) << key << " in " << line;
    EXPECT_EQ(line["left"], lines[0]["left"]);
    EXPECT_EQ(line["verified"], true);
  }
  EXPECT_EQ(lines[0]["call"], "first");
  EXPECT_EQ(lines[0]["predicate_calls"], 390000);
  EXPECT_EQ(lines[1]["call"], "second");
  EXPECT_EQ(lines[1]["predicate_calls"], 0);
  EXPECT_LT(lines[2]["predicate_calls"], 390000 / 5);
  EXPECT_EQ(lines[3]["predicate_calls"], 0);
}

TEST(BenchGemm, MeasuresItsCutWhenAskedTo) {
  Workplace work;
  const std::string gemm = "bench gemm --m 128 --n 128 --k 128 --json",
                    choice = "TUTTI_CACHE_DIR=cache TUTTI_GEMM_CHOICE=";
  const Output output = work.tutti(gemm, choice + "measure,max_candidates=3,samples=1");
  EXPECT_EQ(output.status, 0) << output.err;
  EXPECT_NE(output.out.find("\"verified\":true"), std::string::npos) << output.out;
  int choices = 0;
  for (const auto& file : std::filesystem::directory_iterator(work.folder() / "cache"))
    choices += file.path().extension() == ".choice";
  EXPECT_EQ(choices, 1);
}

TEST(BenchGemm, RefusesAMalformedChoice) {
  Workplace work;
  const Output output = work.tutti("bench gemm --m 128 --n 128 --k 128", "TUTTI_GEMM_CHOICE=mesure");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("TUTTI_GEMM_CHOICE: mode=mesure: expected heuristic or measure"), std::string::npos)
      << output.err;
}

}  // namespace
}  // namespace tutti::test
