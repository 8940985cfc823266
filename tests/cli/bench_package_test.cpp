// `tutti bench package`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <tuple>

#include "tests/cli/support/program.h"
#include "tests/cli/support/published.h"
#include "tests/cli/support/tiny_run.h"

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

TEST(BenchPackage, TimesTheCallsOfAPackagedModel) {
  const Workplace work;
  write_tiny_run(work);
  write_published_decoder(work);
  const Output made = work.tutti("package published small --context 300");
  ASSERT_EQ(made.status, 0) << made.err;
  const Output both = work.tutti("bench package --model small --total-ms 20 --logits logits --json");
  ASSERT_EQ(both.status, 0) << both.err;
  std::istringstream lines(both.out);
  for (const auto& [name, tokens, keys] : {std::tuple("read", 65, 0), {"write", 1, 256}}) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line)) << both.out;
    const auto row = nlohmann::json::parse(line);
    EXPECT_EQ(row["function"], name);
    EXPECT_EQ(row["tokens"], tokens);
    EXPECT_EQ(row["keys"], keys);
    EXPECT_EQ(row["same_bits"], true);
    for (const char* key : {"file_bytes", "open_ms", "first_ms", "packaged_us", "packaged_min_us"})
      EXPECT_GT(row[key].get<double>(), 0) << key;
  }
  // The logits do not depend on threads, nor on which calls are measured.
  ASSERT_EQ(work.tutti("bench package --model small --only write --threads 2 --total-ms 1 --logits written").status, 0);
  const std::string logits = work.read("logits"), written = work.read("written");
  EXPECT_EQ(logits.size(), 2 * written.size());
  EXPECT_TRUE(logits.ends_with(written));
  for (const auto& [flags, words] :
       {std::pair("--only read", "--only read is a call of a packaged model"),
        {"--model small --only mlp", "--only mlp is a function"},
        {"--model published", "published holds no packaged model; tutti package MODEL TARGET writes one"}})
    EXPECT_NE(work.tutti(fmt::format("bench package {}", flags)).err.find(words), std::string::npos) << flags;
  ASSERT_EQ(work.tutti("package published short --context 128").status, 0);
  EXPECT_NE(work.tutti("bench package --model short").err.find("holds texts of 128 tokens; 257 are needed"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::test
