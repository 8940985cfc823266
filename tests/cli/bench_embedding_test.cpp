// `tutti bench embedding`: every kind, under the documented keys.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/support/program.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

std::vector<std::string> kinds_of(const std::string& flags) {
  Workplace work;
  const Output output = work.tutti("bench embedding --total-ms 1 --bags 6 --rows 1000 -t 2 --json " + flags);
  EXPECT_EQ(output.status, 0) << output.err << output.out;
  std::vector<std::string> kinds;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) {
    const JsonDocument document(line, {.name = "row"});
    const JsonValue row = document.top();
    kinds.push_back(row.at("kind").string());
    EXPECT_EQ(row.at("threads").whole(), 2) << line;
    for (const char* key : {"entries", "distinct_rows", "min_us", "median_us", "gbps", "read_share"})
      EXPECT_GT(row.at(key).number(), 0) << key << " in " << line;
  }
  return kinds;
}

TEST(BenchEmbedding, LooksUpAndStepsManyTablesOrOne) {
  EXPECT_EQ(kinds_of("--tables 7 --codes"),
            (std::vector<std::string>{"read", "forward", "int8", "int4", "sgd", "rowwise_adagrad"}));
  EXPECT_EQ(kinds_of("--one-table --skew 0"),
            (std::vector<std::string>{"read", "forward", "embedding_bag", "sgd", "rowwise_adagrad"}));
  EXPECT_EQ(kinds_of("--hot-row"), (std::vector<std::string>{"read", "atomic", "atomic_runs", "sgd"}));
}

}  // namespace
}  // namespace tutti::test
