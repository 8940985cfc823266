#include <gtest/gtest.h>

#include "tutti/comm/process_group.h"
#include "tutti/comm/run_ranks.h"
#include "tutti/core/error.h"

namespace tutti::comm {
namespace {

TEST(ByteCollectives, RefuseARootThatIsNoRank) {
  run_ranks(2, [](ProcessGroup& group) {
    for (const int root : {-1, 2}) {
      EXPECT_THROW(group.gather_bytes("abc", root), UsageError);
      EXPECT_THROW(group.broadcast_bytes("abc", root), UsageError);
      EXPECT_THROW(group.scatter_bytes({"a", "b"}, root), UsageError);
    }
    group.barrier();
  });
}

}  // namespace
}  // namespace tutti::comm
