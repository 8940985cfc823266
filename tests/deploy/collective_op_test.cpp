#include "tutti/deploy/collective_op.h"

#include <gtest/gtest.h>

namespace tutti::deploy {
namespace {

// Rows are declared while statics are initialized, in an order that is the linker's.
TEST(CollectiveOp, MayBeDeclaredBeforeItIsInitialized) {
  static OpDef op;
  declare_collective(op);
  EXPECT_FALSE(is_collective(op));
  op.ordered = true;
  EXPECT_TRUE(is_collective(op));
  static const OpDef other{.ordered = true};
  EXPECT_FALSE(is_collective(other));
}

}  // namespace
}  // namespace tutti::deploy
