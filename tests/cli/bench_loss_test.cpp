// `tutti bench loss`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchLoss, HoldsTheLossInChunksAgainstTheWhole) {
  Workplace work;
  for (const char* problem : {"", " --dtype bf16 --max-bytes 400000", " --gradients in-forward --max-bytes 2000000"}) {
    const Output output =
        work.tutti(std::string("bench loss --tokens 130 --features 16 --vocab 1100 --repeats 1 --json") + problem);
    ASSERT_EQ(output.status, 0) << output.err;
    int lines = 0, in_forward = 0;
    std::istringstream text(output.out);
    for (std::string line; std::getline(text, line); ++lines) {
      const auto row = nlohmann::json::parse(line);
      EXPECT_EQ(row.size(), 16u);
      for (const char* key :
           {"op", "pass", "tokens", "features", "vocab", "dtype", "threads", "max_bytes", "min_us", "median_us",
            "min_cpu_us", "gflops", "peak_gflops", "peak_mbytes", "held_mbytes", "verified"})
        EXPECT_TRUE(row.contains(key)) << key << " in " << line;
      EXPECT_EQ(row["verified"], true) << line;
      in_forward += row["op"] == "in forward";
    }
    EXPECT_EQ(in_forward, std::string(problem).find("in-forward") == std::string::npos ? 0 : 3)
        << output.out;  // of the passes with gradients
    EXPECT_EQ(lines, 8 + in_forward) << output.out;
  }
}

TEST(BenchLoss, SaysWhatItDoesNotKnow) {
  Workplace work;
  const Output output = work.tutti("bench loss --only sideways");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("no pass of this bench has 'sideways' in its name; leave --only out to see them all"),
            std::string::npos)
      << output.err;
}

}  // namespace
}  // namespace tutti::test
