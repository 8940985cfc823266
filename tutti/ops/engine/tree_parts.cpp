#include "tutti/ops/engine/tree_parts.h"

#include <algorithm>

namespace tutti {
namespace {

void split(int64_t begin, int64_t count, int levels, int64_t leaf, std::vector<TreePart>& parts) {
  if (levels == 0 || count <= leaf || count < 2) {
    parts.push_back({begin, count});
    return;
  }
  const int64_t left = count - count / 2;
  split(begin, left, levels - 1, leaf, parts);
  split(begin + left, count / 2, levels - 1, leaf, parts);
  ++parts.back().merges;
}

}  // namespace

std::vector<TreePart> tree_parts(int64_t n, int levels, int64_t leaf) {
  std::vector<TreePart> parts;
  split(0, n, levels, leaf, parts);
  int pending = 0;
  for (TreePart& part : parts) {
    part.pending = pending;
    pending += 1 - part.merges;
  }
  return parts;
}

int tree_levels(int64_t n, int64_t leaf) {
  int levels = 0;
  for (; n > leaf && n > 1; n -= n / 2) ++levels;
  return levels;
}

int slots_of(const std::vector<TreePart>& parts) {
  int slots = 0;
  for (const TreePart& part : parts) slots = std::max(slots, part.pending + 1);
  return slots;
}

}  // namespace tutti
