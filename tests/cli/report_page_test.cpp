// report.html of a run that is started again.
#include <gtest/gtest.h>

#include "tests/cli/support/tiny_run.h"

namespace tutti::test {
namespace {

// From one heading of a page to the next.
std::string part_of(const std::string& page, const std::string& heading) {
  const size_t begin = page.find("<h2>" + heading);
  if (begin == std::string::npos) return "";
  return page.substr(begin, page.find("<h2>", begin + 4) - begin);
}

struct ReportPage : testing::Test {
  ReportPage() { write_tiny_run(work); }
  std::string start(const std::string& flags) {
    const Output output = work.tutti("train run.toml " + flags);
    EXPECT_EQ(output.status, 0) << output.err;
    warned = output.err;
    return work.read("runs/run/report.html");
  }
  Workplace work;
  std::string warned;
};

TEST_F(ReportPage, IsTheSameWhenAFinishedRunIsStartedAgain) {
  const std::string first = start("-n 2");
  for (const char* heading : {"Memory of the ranks", "Timeline of step 2", "Peak memory of a step, rank 0",
                              "What the model writes", "Model", "Configuration"})
    EXPECT_NE(part_of(first, heading), "") << heading;
  for (int again = 0; again < 2; ++again) EXPECT_EQ(start("-n 2"), first);
}

// A step that compiles everything is no timeline, so a start of one step shows the one before it.
TEST_F(ReportPage, KeepsWhatAStartOfOneStepDoesNotMeasure) {
  const std::string timeline = part_of(start("-n 2"), "Timeline of step 2");
  const std::string longer = start("-n 3 --training.steps=7");
  EXPECT_EQ(part_of(longer, "Timeline of step 2"), timeline);
  EXPECT_NE(part_of(longer, "Memory of the ranks").find(">rank 2<"), std::string::npos)
      << "the memory is that of the last start that trained";
  const std::string samples = part_of(longer, "What the model writes");
  EXPECT_NE(samples.find("step 6"), std::string::npos);
  EXPECT_LT(samples.find("step 7"), samples.find("step 6"));
}

TEST_F(ReportPage, LacksWhatADamagedFileHeldAndTheRunGoesOn) {
  start("--stop-at 3");
  work.write("runs/run/report.json", "{\"memory\": 3}");
  const std::string page = start("");
  EXPECT_NE(warned.find("report.html will lack what earlier starts measured: "), std::string::npos) << warned;
  EXPECT_NE(warned.find("runs/run/report.json"), std::string::npos) << warned;
  EXPECT_NE(part_of(page, "Timeline of step 5"), "");
}

}  // namespace
}  // namespace tutti::test
