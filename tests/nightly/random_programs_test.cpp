#include <gtest/gtest.h>

#include "tests/graph/support/compare_programs.h"
#include "tests/graph/support/held_programs.h"

namespace tutti {
namespace {

TEST(RandomPrograms, TwentyThousandHaveEqualBits) { EXPECT_EQ(graph_test::first_difference(1000, 20000), ""); }

TEST(RandomPrograms, OneResultOfSeveralHasTheGradientsOfAnEagerRun) {
  EXPECT_EQ(graph_test::first_partial_difference(1000, 2000), "");
}

TEST(RandomPrograms, ThreeThousandWhoseHeldTensorsAreReplacedHaveEqualBits) {
  using Look = CompileOptions::Look;
  EXPECT_EQ(graph_test::first_difference_when_held_are_replaced(20000, 2000, {}), "");
  EXPECT_EQ(graph_test::first_difference_when_held_are_replaced(30000, 1000, {.look = Look::every_call}), "");
}

}  // namespace
}  // namespace tutti
