// Whatever moment a run is killed or stopped at, the finished run is the one that nobody disturbed. 200 times: ctest -L
// nightly.
#include <gtest/gtest.h>

#include "tests/cli/support/interruptions.h"

namespace tutti::test {
namespace {

TEST(Interruptions, SixAtRandomMomentsChangeNothing) { EXPECT_EQ(interrupt_runs(12, 6).difference, ""); }

}  // namespace
}  // namespace tutti::test
