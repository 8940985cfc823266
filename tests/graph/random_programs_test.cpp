#include <gtest/gtest.h>

#include "tests/graph/support/compare_programs.h"

namespace tutti {
namespace {

TEST(RandomPrograms, EagerAndCompiledHaveEqualBits) {
  int64_t members = 0, failures = 0;
  EXPECT_EQ(graph_test::first_difference(1, 300, &members, &failures), "");
  EXPECT_GT(members, 250);  // of at most 900; many of the ops ask for integers
  EXPECT_GT(failures, 50);  // of 1800 calls
}

TEST(RandomPrograms, OneResultOfSeveralHasTheGradientsOfAnEagerRun) {
  EXPECT_EQ(graph_test::first_partial_difference(1, 150), "");
}

TEST(RandomPrograms, ThoseThatReadOnTheWayHaveEqualBitsInSegments) {
  int64_t continuations = 0;
  EXPECT_EQ(graph_test::first_difference_in_segments(1, 150, &continuations), "");
  EXPECT_GT(continuations, 200);
}

}  // namespace
}  // namespace tutti
