#include <gtest/gtest.h>

#include "tests/graph/support/compare_programs.h"

namespace tutti {
namespace {

TEST(RandomPrograms, TenThousandHaveEqualBits) { EXPECT_EQ(graph_test::first_difference(1000, 10000), ""); }

}  // namespace
}  // namespace tutti
