// `tutti bench package`.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchPackage, HoldsThePackagedCallAgainstTheCompiledOne) {
  Workplace work;
  const Output output = work.tutti("bench package --only mlp --total-ms 20 --json");
  ASSERT_EQ(output.status, 0) << output.err;
  const auto row = nlohmann::json::parse(output.out);
  EXPECT_EQ(row.size(), 14u);
  EXPECT_EQ(row["function"], "mlp");
  EXPECT_EQ(row["same_bits"], true);
  for (const char* key : {"file_bytes", "constant_bytes", "open_ms", "first_ms", "live_us", "packaged_us",
                          "live_min_us", "packaged_min_us", "ratio", "rss_bytes", "pss_bytes"})
    EXPECT_GT(row[key].get<double>(), 0) << key;
  EXPECT_LE(row["open_ms"], row["first_ms"]);
  EXPECT_LT(row["pss_bytes"], row["rss_bytes"]) << "two processes that have the package open share no page of it";
}

}  // namespace
}  // namespace tutti::test
