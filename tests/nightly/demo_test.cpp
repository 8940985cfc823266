// The runs that `tutti demo bits --keep` leaves: what the demo says of them is true.
#include <gtest/gtest.h>

#include "tests/cli/support/program.h"

namespace tutti::test {
namespace {

TEST(KeptDemo, ShowsTheKilledRankAndTheSameRun) {
  Workplace work;
  const Output output = work.tutti("demo bits --keep kept");
  ASSERT_EQ(output.status, 0) << output.out << output.err;
  // The rank was killed after a checkpoint, and its launcher said so; the run went on where it had stopped.
  const std::string told = work.read("kept/killed-then-two-ranks.txt");
  EXPECT_NE(told.find("rank 1"), std::string::npos) << told;
  EXPECT_NE(told.find("SIGKILL"), std::string::npos) << told;
  EXPECT_EQ(work.tutti("diff kept/one-rank kept/killed-then-two-ranks").status, 0);
}

}  // namespace
}  // namespace tutti::test
