#include "tests/dtensor/support/mesh_programs.h"

#include <gtest/gtest.h>

namespace tutti::dist {
namespace {

// nightly/mesh_programs_test.cpp runs 20,000.
TEST(MeshPrograms, HaveTheBitsOfOneRankAfterEachCall) {
  ProgramCounts counts;
  ASSERT_EQ(first_difference_on_meshes(1, 600, &counts), "");
  EXPECT_EQ(counts.programs, 600);
  EXPECT_GT(counts.writes, counts.calls / 5);
  EXPECT_LT(counts.refused, counts.calls / 5);
}

}  // namespace
}  // namespace tutti::dist
