// `tutti bench compile --gate`: what it prints and when it fails. The margins are wide: tests share the machine.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/support/program.h"
#include "tutti/runtime/json_document.h"

namespace tutti::test {
namespace {

TEST(CompileGate, ChainsOverRowsStayBelowAWideLimit) {
  Workplace work;
  const Output output = work.tutti("bench compile --gate --only softmaxes --limit 2.5 --json");
  EXPECT_EQ(output.status, 0) << output.err << output.out;
  std::vector<std::string> programs;
  std::istringstream text(output.out);
  for (std::string line; std::getline(text, line);) {
    const JsonDocument document(line, {.name = "row"});
    const JsonValue row = document.top();
    programs.push_back(row.at("program").string());
    for (const char* key : {"eager_us", "compiled_us", "ratio", "eager_peak_bytes", "compiled_peak_bytes", "kernels"})
      EXPECT_GT(row.at(key).number(), 0) << key << " in " << line;
    EXPECT_LE(row.at("compiled_peak_bytes").whole(), row.at("eager_peak_bytes").whole()) << line;
  }
  EXPECT_EQ(programs,
            (std::vector<std::string>{"2 softmaxes [64, 256]", "5 softmaxes [64, 256]", "20 softmaxes [64, 256]"}));
}

TEST(CompileGate, FailsWhereAProgramIsAboveTheLimit) {
  Workplace work;
  const Output output = work.tutti("bench compile --gate --only 'sums of both dims [64' --limit 0.01");
  EXPECT_EQ(output.status, 1) << output.err;
  EXPECT_NE(output.out.find("1 programs, geometric mean"), std::string::npos) << output.out;
  EXPECT_NE(output.out.find("1 above 0.01, 0 with more memory"), std::string::npos) << output.out;
}

TEST(CompileGate, SaysThatNoProgramIsNamedSo) {
  Workplace work;
  const Output output = work.tutti("bench compile --gate --only nothing-like-this");
  EXPECT_EQ(output.status, 2);
  EXPECT_NE(output.err.find("no program's name contains 'nothing-like-this'; without --only all 87 run"),
            std::string::npos)
      << output.err;
}

}  // namespace
}  // namespace tutti::test
