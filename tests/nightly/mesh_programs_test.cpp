#include "tests/dtensor/support/mesh_programs.h"

#include <gtest/gtest.h>

#include <cstdio>

namespace tutti::dist {
namespace {

TEST(MeshPrograms, TwentyThousandHaveTheBitsOfOneRankAfterEachCall) {
  ProgramCounts counts;
  ASSERT_EQ(first_difference_on_meshes(100'000, 20'000, &counts), "");
  std::printf("%ld programs, %ld calls, %ld of them writes, %ld refused\n", counts.programs, counts.calls,
              counts.writes, counts.refused);
}

}  // namespace
}  // namespace tutti::dist
