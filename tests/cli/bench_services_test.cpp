// `tutti bench services` measures each service once and prints the documented keys.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(BenchServices, PrintsOneObjectPerMeasurement) {
  Workplace work;
  const Output output = work.tutti("bench services --clients 20 --groups 3 -n 2 --json");
  ASSERT_EQ(output.status, 0) << output.err;
  std::map<std::string, int> times;
  std::istringstream lines(output.out);
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    std::vector<std::string> keys;
    for (const auto& [key, value] : json.items()) keys.push_back(key);
    EXPECT_EQ(keys, (std::vector<std::string>{"count", "median_ns", "min_ns", "of", "ranks", "service"})) << line;
    EXPECT_GT(json["min_ns"].get<double>(), 0) << line;
    EXPECT_LE(json["min_ns"].get<double>(), json["median_ns"].get<double>()) << line;
    ++times[json["service"]];
  }
  const std::map<std::string, int> expected = {
      {"recorder_at_once", 1}, {"recorder_taking_time", 1}, {"store_set", 2}, {"store_get", 2},
      {"store_connect", 1},    {"store_barrier", 1},        {"new_group", 1}};
  EXPECT_EQ(times, expected) << output.out;
}

TEST(BenchServices, MoreClientsThanDescriptorsAreRefused) {
  Workplace work;
  const Output output = work.tutti("bench services --clients 5000 --groups 1 -n 1 --json", "ulimit -n 4000;");
  EXPECT_EQ(output.status, 1) << output.out;
  EXPECT_NE(output.err.find("5000 clients need 10100 descriptors; this process may have 4000"), std::string::npos)
      << output.err;
}

}  // namespace
}  // namespace tutti::test
