#include "tutti/core/tree_cut.h"

#include <algorithm>
#include <bit>

#include "tutti/core/error.h"

namespace tutti {

// The smallest node of a level is that of the floors: all nodes of the level split when it does.
int64_t largest_cut(int64_t size, int64_t leaf) {
  int64_t ranks = 1;
  while (size / ranks > leaf && size / ranks >= 2) ranks *= 2;
  return ranks;
}

int64_t largest_range_cut(int64_t size, int64_t range) {
  const int64_t left = size - size / 2;
  if (size <= range || left % range != 0) return 1;
  return 2 * std::min(largest_range_cut(left, range), largest_range_cut(size - left, range));
}

TreeCut tree_cut(int64_t size, int64_t leaf, int rank, int ranks, std::string_view what) {
  TUTTI_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "{}: rank {} of {} ranks", what, rank, ranks);
  const int64_t largest = largest_cut(size, leaf);
  TUTTI_CHECK(
      std::has_single_bit(static_cast<unsigned>(ranks)) && ranks <= largest,
      "{}: {} elements cannot be cut over {} ranks: the sum over them is a tree of halves with leaves of {}, and a "
      "cut must fall on a border of the tree; the legal numbers of ranks are powers of two up to {}",
      what, size, ranks, leaf, largest);
  int64_t begin = 0, end = size;
  for (int below = ranks; below > 1; below /= 2) {
    const int64_t middle = end - (end - begin) / 2;
    if (rank % below < below / 2) end = middle;
    else begin = middle;
  }
  return {begin, end};
}

}  // namespace tutti
