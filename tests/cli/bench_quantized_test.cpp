// `tutti bench quantized`: every format on one thread and on several, under the documented keys.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "tests/cli/support/program.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

TEST(BenchQuantized, MultipliesEveryFormat) {
  Workplace work;
  const Output output = work.tutti("bench quantized --small --m 1 7 --n 33 --k 512 -t 2 --json");
  ASSERT_EQ(output.status, 0) << output.err << output.out;
  std::set<std::string> formats;
  int lines = 0;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line); ++lines) {
    const JsonDocument document(line, {.name = "row"});
    const JsonValue row = document.top();
    EXPECT_EQ(row.size(), 14U) << line;
    EXPECT_EQ(row.at("n").whole(), 33) << line;
    EXPECT_EQ(row.at("k").whole(), 512) << line;
    EXPECT_EQ(row.at("threads").whole(), 2) << line;
    EXPECT_TRUE(row.at("verified").boolean()) << line;
    for (const char* key :
         {"m", "min_us", "median_us", "gops", "peak_share", "gbytes_per_s", "read_share", "f32_us", "ratio"})
      EXPECT_GT(row.at(key).number(), 0) << key << " in " << line;
    formats.insert(row.at("format").string());
  }
  EXPECT_EQ(formats.size(), 8U) << output.out;
  EXPECT_EQ(lines, 16) << output.out;
}

TEST(BenchQuantized, SaysWhatDoesNotFit) {
  Workplace work;
  const Output odd = work.tutti("bench quantized --k 300"), unknown = work.tutti("bench quantized --only Q2");
  EXPECT_EQ(odd.status, 2);
  EXPECT_NE(odd.err.find("k is 300; expected a multiple of 256"), std::string::npos) << odd.err;
  EXPECT_EQ(unknown.status, 2);
  EXPECT_NE(unknown.err.find("no format is named like 'Q2'"), std::string::npos) << unknown.err;
}

}  // namespace
}  // namespace tutti::test
