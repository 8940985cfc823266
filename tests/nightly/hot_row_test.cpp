// One row that is hit a million times in a batch of 2^20: the same bits on any ranks, threads and plans.
#include "tests/parallel/support/hot_row.h"

namespace tutti::parallel {
namespace {

TEST(HotRow, AMillionLookupsHaveOneSum) { expect_same_steps_of_a_hot_row(1 << 20); }

}  // namespace
}  // namespace tutti::parallel
