// The places at which a dim may be divided over ranks such that sums over it keep their bits (numerics contract, N3 and
// N11).
//
// A dim of n elements is summed by halving, into ceil(n/2) and floor(n/2) elements, until a part fits a leaf. Ranks
// hold the nodes of one level of that tree, so the parts of an odd dim differ by at most one element, and the ranks,
// combining their sums by halving, complete the upper part of the same tree.
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti {

struct TreeCut {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
};

// The largest power of two of ranks over which a dim can be divided without dividing a leaf; at least 1.
int64_t largest_cut(int64_t size, int64_t leaf);

// The same for a dim that is summed over fixed ranges of `range` elements (N5): every rank's part begins where a range
// does.
int64_t largest_range_cut(int64_t size, int64_t range);

// The elements that `rank` of `ranks` holds. For a dim that is never summed over, pass leaf = 1.
// UsageError, naming `what` and the largest possible number of ranks, when a border would fall inside a leaf.
TreeCut tree_cut(int64_t size, int64_t leaf, int rank, int ranks, std::string_view what);

}  // namespace tutti
