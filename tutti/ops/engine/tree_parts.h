// Parts of a dim that is summed by halving (numerics contract, N3): the nodes of one level of its tree, in order.
//
// A kernel that cannot hold what all elements give computes one part after the other. What a part gives is the value of
// its node, and the values combine to the bits of the whole: part i goes to slot `pending`, then the last two slots are
// added `merges` times, the older one in front.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

struct TreePart {
  int64_t begin, count;
  int merges = 0;   // with the values before it, once its own is there
  int pending = 0;  // values that wait before it comes: the slot it takes
};

// The nodes `levels` below the root, or leaves above: a node of at most `leaf` elements is not split.
std::vector<TreePart> tree_parts(int64_t n, int levels, int64_t leaf);
// Levels below which no node is left to split.
int tree_levels(int64_t n, int64_t leaf);
// Slots that the parts take.
int slots_of(const std::vector<TreePart>& parts);

}  // namespace tutti
