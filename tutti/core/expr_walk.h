// Which nodes of a recipe are computed.
#pragma once

#include <span>
#include <vector>

#include "tutti/core/expr.h"

namespace tutti {

// Per node, whether it is one of `roots` or an operand, near or far, of one of them.
inline std::vector<bool> needed_by(std::span<const int32_t> roots, std::span<const ExprNode> nodes) {
  std::vector<bool> needed(nodes.size(), false);
  for (const int32_t root : roots) needed[static_cast<size_t>(root)] = true;
  for (size_t n = needed.size(); n-- > 0;) {  // operands stand before what is made of them
    if (!needed[n]) continue;
    for (int k = 0; k < arity_of(nodes[n].op); ++k) needed[static_cast<size_t>(nodes[n].operands[k])] = true;
  }
  return needed;
}

}  // namespace tutti
