// `tutti bench strict`: every op agrees with its loops, and the keys are the documented ones.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchStrict, HoldsOpsAgainstLoopsWithoutAnOrder) {
  Workplace work;
  for (const char* threads : {"1", "3"}) {
    const Output output = work.tutti(std::string("bench strict --small --json --threads ") + threads);
    ASSERT_EQ(output.status, 0) << output.err << output.out;
    std::set<std::string> ops;
    std::istringstream text(output.out);
    for (std::string line; std::getline(text, line);) {
      const auto row = nlohmann::json::parse(line);
      EXPECT_EQ(row.size(), 13u);
      for (const char* key : {"op", "shape", "dtype", "threads", "baseline", "strict_min_us", "strict_median_us",
                              "free_min_us", "free_median_us", "ratio", "gbps", "gflops", "verified"})
        EXPECT_TRUE(row.contains(key)) << key << " in " << line;
      EXPECT_EQ(row["verified"], true) << line;
      EXPECT_GT(row["strict_min_us"], 0) << line;
      ops.insert(row["op"]);
    }
    EXPECT_EQ(ops, (std::set<std::string>{"cross_entropy", "dX of branches", "embedding, gradient", "gradient norm",
                                          "layer_norm", "matmul", "matmul, A^T", "matmul, B^T", "mean", "rms_norm",
                                          "scatter_add", "sdpa, causal", "softmax", "sum"}));
  }
}

TEST(BenchStrict, SaysWhatDoesNotFit) {
  Workplace work;
  const Output unknown = work.tutti("bench strict --only sideways"),
               clock = work.tutti("bench strict --cpu-time --threads 2");
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("no op of this bench has 'sideways' in its name; leave --only out to see them all"),
            std::string::npos)
      << unknown.err;
  EXPECT_EQ(clock.status, 2);
  EXPECT_NE(clock.err.find("bench strict: --cpu-time is that of one thread, and --threads is 2; use --threads 1"),
            std::string::npos)
      << clock.err;
}

}  // namespace
}  // namespace tutti::test
