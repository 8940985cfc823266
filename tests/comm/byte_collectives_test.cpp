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

// The root's mistake ends the call on every rank, and the next call meets the next call.
TEST(ByteCollectives, AWrongNumberOfPartsIsToldOnAllRanks) {
  run_ranks(3, [](ProcessGroup& group) {
    for (const std::vector<std::string>& parts :
         {std::vector<std::string>{"a"}, std::vector<std::string>{"a", "b", "c", "d"}, std::vector<std::string>{}}) {
      try {
        group.scatter_bytes(parts, 1);
        ADD_FAILURE() << "nothing was thrown";
      } catch (const UsageError& error) {
        EXPECT_EQ(std::string(error.what()),
                  fmt::format("scatter_bytes: rank 1 gives {} part{} for a group of 3 ranks; expected one for each",
                              parts.size(), parts.size() == 1 ? "" : "s"));
      }
      EXPECT_EQ(group.scatter_bytes({"x", "yy", ""}, 1),
                std::vector<std::string>({"x", "yy", ""})[static_cast<size_t>(group.rank())]);
    }
  });
}

}  // namespace
}  // namespace tutti::comm
