#include "tests/graph/support/held_programs.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Options = CompileOptions;
using graph_test::first_difference_when_held_are_replaced;

TEST(HeldPrograms, TensorsThatAreReplacedBetweenCallsAreRead) {
  int64_t compiles = 0;
  EXPECT_EQ(first_difference_when_held_are_replaced(1, 100, {}, &compiles), "");
  EXPECT_GT(compiles, 300);
}

TEST(HeldPrograms, AlsoWhereNoTensorObjectTellsOfIt) {
  EXPECT_EQ(first_difference_when_held_are_replaced(1001, 60, {.look = Options::Look::every_call}), "");
}

TEST(HeldPrograms, AlsoInSegmentsAndWithFixedSizes) {
  EXPECT_EQ(first_difference_when_held_are_replaced(2001, 40, {.on_break = Options::OnBreak::segment}), "");
  EXPECT_EQ(first_difference_when_held_are_replaced(3001, 40, {.sizes = Options::Sizes::fixed}), "");
}

}  // namespace
}  // namespace tutti
