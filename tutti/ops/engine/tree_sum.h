// A sum in the tree of reductions, for kernels in C++ (numerics contract, N3).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/ops/engine/index_loops.h"

namespace tutti::facets {

// The leaf of sums over a row of a table: halves of the columns fall on nodes of the tree.
constexpr int64_t kSquaresLeaf = 16;

// The sum of value(i) over [begin, end): halves of ceil(n/2) and floor(n/2) until kLeaf elements, whose 16 lanes (lane
// j adds j, j + 16, ...) are combined by halving.
template <class Real, int64_t kLeaf = 512, class Value>
Real tree_sum(int64_t begin, int64_t end, Value value) {
  const int64_t n = end - begin;
  if (n > kLeaf) {
    const int64_t middle = begin + (n + 1) / 2;
    const Real first = tree_sum<Real, kLeaf>(begin, middle, value);
    return first + tree_sum<Real, kLeaf>(middle, end, value);
  }
  if (n == 0) return static_cast<Real>(kSumIdentity);
  // Lanes without an element hold the identity, which changes no bit: they are left out.
  Real lanes[16];
  const int64_t used = std::min<int64_t>(n, 16);
  for (int64_t j = 0; j < used; ++j) lanes[j] = value(begin + j);
  int64_t i = 16;
  for (; i + 16 <= n; i += 16) {  // one vector loop
    for (int64_t j = 0; j < 16; ++j) lanes[j] += value(begin + i + j);
  }
  for (; i < n; ++i) lanes[i % 16] += value(begin + i);
  for (int64_t width = 8; width > 0; width /= 2) {
    for (int64_t j = 0; j < width && j + width < used; ++j) lanes[j] += lanes[j + width];
  }
  return lanes[0];
}

}  // namespace tutti::facets
