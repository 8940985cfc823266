// TUTTI_INTERRUPTIONS and TUTTI_INTERRUPTIONS_SEED in the environment choose another count and other moments.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/cli/support/interruptions.h"

namespace tutti::test {
namespace {

int number_in(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text ? std::stoi(text) : otherwise;
}

TEST(Interruptions, TwoHundredAtRandomMomentsChangeNothing) {
  const InterruptionReport report = interrupt_runs(static_cast<uint64_t>(number_in("TUTTI_INTERRUPTIONS_SEED", 1)),
                                                   number_in("TUTTI_INTERRUPTIONS", 200));
  std::printf("%s\n", report.counts.c_str());
  EXPECT_EQ(report.difference, "");
}

}  // namespace
}  // namespace tutti::test
