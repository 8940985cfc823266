// The data-parallel lesson with ranks that are processes: the line it prints is the same on every number of them.
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(LaunchedExample, DataParallelTrainingHasTheSameBitsOnAnyNumberOfProcesses) {
  const Workplace work;
  std::string expected;
  for (const std::string ranks : {"1", "2", "3", "4", "6"}) {
    const Output output = work.tutti("launch -n " + ranks + " -- " TUTTI_BINARY_DIR "/example_09_data_parallel");
    ASSERT_EQ(output.status, 0) << output.err;
    const size_t at = output.out.find("loss 0x");
    ASSERT_NE(at, std::string::npos) << output.out;
    const std::string result = output.out.substr(at, output.out.find('\n', at) - at);
    if (expected.empty()) expected = result;
    EXPECT_EQ(result, expected) << ranks;
  }
}

}  // namespace
}  // namespace tutti::test
