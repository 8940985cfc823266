#include "tutti/codegen/gemm/contraction_tree.h"

#include <gtest/gtest.h>

#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

using Lengths = std::vector<int32_t>;
using Merges = std::vector<uint8_t>;

TEST(ContractionTree, HalvesElementsUntilALeafHoldsThem) {
  EXPECT_EQ(ContractionTree::halving(1000, 128).leaf_lengths, Lengths(8, 125));
  EXPECT_EQ(ContractionTree::halving(300, 128).leaf_lengths, Lengths(4, 75));
  EXPECT_EQ(ContractionTree::halving(7, 2).leaf_lengths, (Lengths{2, 2, 2, 1}));
}

TEST(ContractionTree, MergesInPostfixOrder) {
  EXPECT_EQ(ContractionTree::halving(1024, 128).merges, (Merges{0, 1, 0, 2, 0, 1, 0, 3}));
  EXPECT_EQ(ContractionTree::halving(5, 1).merges, (Merges{0, 1, 1, 0, 2}));
}

TEST(ContractionTree, OfOneLeafHasNoMerges) {
  const ContractionTree tree = ContractionTree::halving(128, 128);
  EXPECT_EQ(tree.leaf_lengths, Lengths{128});
  EXPECT_EQ(tree.merges, Merges{0});
}

TEST(ContractionTree, OfNothingHasNoLeaves) {
  EXPECT_TRUE(ContractionTree::halving(0).leaf_lengths.empty());
  EXPECT_TRUE(ContractionTree::ranges(std::vector<int32_t>{0, 0, 0}).leaf_lengths.empty());
}

TEST(ContractionTree, OfRangesHalvesRangesAndSkipsEmptyOnes) {
  const ContractionTree tree = ContractionTree::ranges(std::vector<int32_t>{3, 0, 2, 0, 0, 5, 0, 0});
  EXPECT_EQ(tree.leaf_lengths, (Lengths{3, 2, 5}));
  EXPECT_EQ(tree.merges, (Merges{0, 1, 1}));
}

TEST(ContractionTree, HalfOfTheRangesIsASubtreeOfTheWhole) {
  const std::vector<int32_t> counts{4, 1, 0, 7, 2, 0, 0, 3};
  const std::span<const int32_t> all(counts);
  const ContractionTree whole = ContractionTree::ranges(all), left = ContractionTree::ranges(all.first(4)),
                        right = ContractionTree::ranges(all.subspan(4));
  Lengths lengths = left.leaf_lengths;
  lengths.insert(lengths.end(), right.leaf_lengths.begin(), right.leaf_lengths.end());
  Merges merges = left.merges;
  merges.insert(merges.end(), right.merges.begin(), right.merges.end());
  ++merges.back();
  EXPECT_EQ(whole.leaf_lengths, lengths);
  EXPECT_EQ(whole.merges, merges);
}

TEST(ContractionTree, CountsPendingPartialSums) {
  EXPECT_EQ(ContractionTree::halving(100, 128).depth(), 1);
  EXPECT_EQ(ContractionTree::halving(1024, 128).depth(), 3);
  EXPECT_EQ(ContractionTree::halving(0).depth(), 0);
}

TEST(ContractionTree, RejectsMalformedTrees) {
  EXPECT_THROW((ContractionTree{{1, 1}, {0, 0}}.depth()), UsageError);
  EXPECT_THROW((ContractionTree{{1}, {1}}.depth()), UsageError);
  EXPECT_THROW((ContractionTree{{0}, {0}}.depth()), UsageError);
  EXPECT_THROW((ContractionTree{{1}, {}}.depth()), UsageError);
  EXPECT_THROW(ContractionTree::ranges(std::vector<int32_t>{2, -1}), UsageError);
}

TEST(ContractionTree, LeafCanBeLoweredWhileAScopeLives) {
  {
    const ContractionLeafForTests scope(4);
    EXPECT_EQ(ContractionTree::halving(8).leaf_lengths, (Lengths{4, 4}));
  }
  EXPECT_EQ(contraction_leaf(), kContractionLeaf);
}

}  // namespace
}  // namespace tutti::codegen
