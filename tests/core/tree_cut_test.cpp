#include "tutti/core/tree_cut.h"

#include <gtest/gtest.h>

#include "tutti/core/error.h"

namespace tutti {
namespace {

TEST(TreeCut, PartsOfAnOddDimFollowTheHalving) {
  const int64_t begins[] = {0, 33, 66, 99}, ends[] = {33, 66, 99, 131};
  for (int rank = 0; rank < 4; ++rank) {
    const TreeCut part = tree_cut(131, 16, rank, 4, "vocabulary");
    EXPECT_EQ(part.begin, begins[rank]);
    EXPECT_EQ(part.end, ends[rank]);
  }
}

TEST(TreeCut, OneRankHoldsEverything) {
  EXPECT_EQ(tree_cut(5, 128, 0, 1, "features").size(), 5);
  EXPECT_EQ(tree_cut(0, 128, 0, 1, "features").size(), 0);
}

TEST(TreeCut, ALeafIsNotCut) {
  EXPECT_EQ(largest_cut(256, 128), 2);
  EXPECT_EQ(largest_cut(128, 128), 1);
  EXPECT_EQ(largest_cut(257, 128), 2);  // 129 and 128: only one half could be cut again
  EXPECT_EQ(largest_cut(300, 75), 4);
}

TEST(TreeCut, HeadsAreCutOneByOne) {
  EXPECT_EQ(largest_cut(2, 1), 2);
  EXPECT_EQ(largest_cut(3, 1), 2);
  EXPECT_EQ(largest_cut(8, 1), 8);
}

// Ranges are fixed, so a part that is cut in the middle of one sums other elements together.
TEST(TreeCut, PartsBeginWhereRangesDo) {
  EXPECT_EQ(largest_range_cut(512, 128), 4);
  EXPECT_EQ(largest_range_cut(511, 128), 4);  // 128, 128, 128, 127
  EXPECT_EQ(largest_range_cut(510, 128), 1);  // 255 and 255
  EXPECT_EQ(largest_range_cut(384, 128), 1);  // 192 and 192
  EXPECT_EQ(largest_range_cut(768, 128), 2);
  EXPECT_EQ(largest_range_cut(128, 128), 1);
  EXPECT_EQ(largest_range_cut(0, 128), 1);
  EXPECT_EQ(largest_range_cut(8, 1), 8);
}

TEST(TreeCut, RefusesACutInsideALeafAndNamesTheLargestNumberOfRanks) {
  try {
    tree_cut(256, 128, 0, 4, "mlp.down over its inner features");
    FAIL() << "no error";
  } catch (const UsageError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("mlp.down over its inner features: 256 elements cannot be cut over 4 ranks"), std::string::npos)
        << text;
    EXPECT_NE(text.find("powers of two up to 2"), std::string::npos) << text;
  }
}

TEST(TreeCut, RefusesThreeRanks) { EXPECT_THROW(tree_cut(300, 1, 0, 3, "features"), UsageError); }

}  // namespace
}  // namespace tutti
