// `tutti bench math`: every function within its bound, in both dtypes and sizes, under the documented keys.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchMath, HoldsEveryFunctionAgainstTheCLibrary) {
  Workplace work;
  const Output output = work.tutti("bench math --small --json");
  ASSERT_EQ(output.status, 0) << output.err << output.out;
  std::set<std::string> functions;
  int lines = 0;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line); ++lines) {
    const auto row = nlohmann::json::parse(line);
    EXPECT_EQ(row.size(), 13u);
    for (const char* key : {"op", "dtype", "threads", "where", "elements", "min_us", "median_us", "ns", "gbps",
                            "libm_ns", "ratio", "ulp", "verified"})
      EXPECT_TRUE(row.contains(key)) << key << " in " << line;
    EXPECT_EQ(row["verified"], true) << line;
    EXPECT_GT(row["ns"], 0) << line;
    EXPECT_EQ(row["libm_ns"] == 0, row["op"] == "erfinv") << line;
    if (row["op"] == "exp" && row["where"] == "cache") {
      EXPECT_GT(row["ulp"], 0.4) << line;
      EXPECT_LT(row["ulp"], 0.9) << line;
    }
    functions.insert(row["op"]);
  }
  EXPECT_EQ(functions.size(), 28u) << output.out;
  EXPECT_EQ(lines, 28 * 4) << output.out;
}

TEST(BenchMath, RunsOnThreadsAndSaysWhatDoesNotFit) {
  Workplace work;
  EXPECT_EQ(work.tutti("bench math --small --only atan2 --threads 3").status, 0);
  const Output unknown = work.tutti("bench math --only sideways"),
               clock = work.tutti("bench math --cpu-time --threads 2");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("no function of this bench has 'sideways' in its name; leave --only out to see them all"),
            std::string::npos)
      << unknown.err;
  EXPECT_EQ(clock.status, 2);
  EXPECT_NE(clock.err.find("bench math: --cpu-time is that of one thread, and --threads is 2; use --threads 1"),
            std::string::npos)
      << clock.err;
}

}  // namespace
}  // namespace tutti::test
