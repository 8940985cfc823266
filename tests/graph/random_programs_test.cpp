#include <gtest/gtest.h>

#include "tests/graph/support/compare_programs.h"

namespace tutti {
namespace {

TEST(RandomPrograms, EagerAndCompiledHaveEqualBits) { EXPECT_EQ(graph_test::first_difference(1, 300), ""); }

}  // namespace
}  // namespace tutti
