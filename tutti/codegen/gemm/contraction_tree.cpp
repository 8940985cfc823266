#include "tutti/codegen/gemm/contraction_tree.h"

#include <algorithm>
#include <atomic>

#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

std::atomic<int32_t>& leaf_setting() {
  static std::atomic<int32_t> leaf{kContractionLeaf};
  return leaf;
}

void append_halving(int64_t k, int32_t leaf, ContractionTree& tree) {
  if (k <= leaf) {
    tree.leaf_lengths.push_back(static_cast<int32_t>(k));
    tree.merges.push_back(0);
    return;
  }
  append_halving(k - k / 2, leaf, tree);
  append_halving(k / 2, leaf, tree);
  ++tree.merges.back();
}

struct Range {
  int64_t begin, length;
};

void append_interleaved(std::span<const Range> ranges, int32_t leaf, InterleavedContraction& to) {
  int64_t together = 0, longest = 0;
  for (const Range& r : ranges) together += r.length, longest = std::max(longest, r.length);
  if (together <= leaf || longest < 2) {
    to.tree.leaf_lengths.push_back(static_cast<int32_t>(together));
    to.tree.merges.push_back(0);
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (ranges[i].length > 0)
        to.pieces.push_back({static_cast<int32_t>(i), static_cast<int32_t>(ranges[i].length), ranges[i].begin});
    }
    return;
  }
  std::vector<Range> left(ranges.begin(), ranges.end()), right = left;
  for (size_t i = 0; i < ranges.size(); ++i) {
    right[i].length /= 2;
    left[i].length -= right[i].length;
    right[i].begin += left[i].length;
  }
  append_interleaved(left, leaf, to);
  append_interleaved(right, leaf, to);
  ++to.tree.merges.back();
}

// Whether the ranges held anything.
bool append_ranges(std::span<const int32_t> counts, ContractionTree& tree) {
  if (counts.size() > 1) {
    const size_t half = counts.size() - counts.size() / 2;
    const bool left = append_ranges(counts.first(half), tree);
    const bool right = append_ranges(counts.subspan(half), tree);
    if (left && right) ++tree.merges.back();
    return left || right;
  }
  if (counts.empty() || counts[0] == 0) return false;
  TUTTI_CHECK(counts[0] > 0, "contraction tree: a range has {} rows; counts must not be negative", counts[0]);
  tree.leaf_lengths.push_back(counts[0]);
  tree.merges.push_back(0);
  return true;
}

}  // namespace

int32_t contraction_leaf() { return leaf_setting().load(std::memory_order_relaxed); }

ContractionLeafForTests::ContractionLeafForTests(int32_t leaf) : previous_(contraction_leaf()) {
  TUTTI_CHECK(leaf >= 1, "contraction leaf {}: expected at least 1", leaf);
  leaf_setting() = leaf;
}

ContractionLeafForTests::~ContractionLeafForTests() { leaf_setting() = previous_; }

ContractionTree ContractionTree::halving(int64_t k, int32_t leaf) {
  TUTTI_CHECK(k >= 0 && leaf >= 1, "contraction tree: k = {} and leaf = {}; expected k >= 0 and leaf >= 1", k, leaf);
  ContractionTree tree;
  if (k == 0) return tree;
  size_t leaves = 1;
  for (int64_t length = k; length > leaf; length -= length / 2) leaves *= 2;
  tree.leaf_lengths.reserve(leaves);
  tree.merges.reserve(leaves);
  append_halving(k, leaf, tree);
  return tree;
}

ContractionTree ContractionTree::ranges(std::span<const int32_t> counts) {
  ContractionTree tree;
  append_ranges(counts, tree);
  return tree;
}

InterleavedContraction InterleavedContraction::halving(std::span<const int64_t> lengths, int32_t leaf) {
  std::vector<Range> ranges;
  int64_t together = 0;
  for (const int64_t k : lengths) {
    TUTTI_CHECK(k >= 0 && leaf >= 1, "interleaved contraction: k = {} and leaf = {}; expected k >= 0 and leaf >= 1", k,
                leaf);
    ranges.push_back({0, k});
    together += k;
  }
  InterleavedContraction result;
  if (together > 0) append_interleaved(ranges, leaf, result);
  return result;
}

int64_t ContractionTree::k() const {
  int64_t sum = 0;
  for (const int32_t length : leaf_lengths) sum += length;
  return sum;
}

int32_t ContractionTree::depth() const {
  TUTTI_CHECK(leaf_lengths.size() == merges.size(), "contraction tree: {} leaves but {} merge counts",
              leaf_lengths.size(), merges.size());
  int32_t pending = 0, deepest = 0;
  for (size_t i = 0; i < merges.size(); ++i) {
    TUTTI_CHECK(leaf_lengths[i] >= 1, "contraction tree: leaf {} has length {}; expected at least 1", i,
                leaf_lengths[i]);
    TUTTI_CHECK(merges[i] <= pending, "contraction tree: leaf {} merges {} partial sums, only {} are pending", i,
                merges[i], pending);
    pending += 1 - merges[i];
    deepest = std::max(deepest, pending);
  }
  TUTTI_CHECK(pending == (merges.empty() ? 0 : 1), "contraction tree: {} partial sums are left; expected one", pending);
  return deepest;
}

}  // namespace tutti::codegen
