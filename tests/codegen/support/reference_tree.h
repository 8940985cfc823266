// The reduction trees of the numerics contract (N3, N10) in plain C++: what kernels must agree with to the bit.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>

#include "tutti/codegen/kernel.h"

namespace tutti::codegen::testing {

template <class S>
struct ReferenceTree {
  S identity;
  std::function<S(const S&, const S&)> combine;
  std::function<S(int64_t)> element;
  int64_t leaf = 512;

  // 16 chains, chain j over elements j, j + 16, ...; then chain j with j + 8, j + 4, j + 2, j + 1.
  S leaf_of(int64_t start, int64_t count) const {
    std::array<S, 16> lanes;
    lanes.fill(identity);
    for (int64_t i = 0; i < count; ++i)
      lanes[static_cast<size_t>(i % 16)] = combine(lanes[static_cast<size_t>(i % 16)], element(start + i));
    for (size_t half = 8; half > 0; half /= 2) {
      for (size_t j = 0; j < half; ++j) lanes[j] = combine(lanes[j], lanes[j + half]);
    }
    return lanes[0];
  }

  S halving(int64_t start, int64_t count, const std::function<S(int64_t, int64_t)>& leaf_value) const {
    if (count <= leaf) return leaf_value(start, count);
    const int64_t left = (count + 1) / 2;
    return combine(halving(start, left, leaf_value), halving(start + left, count - left, leaf_value));
  }

  S aligned(int64_t start, int64_t span, int64_t end, const std::function<S(int64_t, int64_t)>& leaf_value) const {
    if (start >= end) return identity;
    if (span == leaf) return leaf_value(start, std::min(leaf, end - start));
    return combine(aligned(start, span / 2, end, leaf_value), aligned(start + span / 2, span / 2, end, leaf_value));
  }

  S reduce(TreeKind kind, int64_t n) const {
    return reduce(kind, n, [this](int64_t start, int64_t count) { return leaf_of(start, count); });
  }

  S reduce(TreeKind kind, int64_t n, const std::function<S(int64_t, int64_t)>& leaf_value) const {
    if (kind == TreeKind::halving) return halving(0, n, leaf_value);
    int64_t span = leaf;
    while (span < n) span *= 2;
    return aligned(0, span, n, leaf_value);
  }
};

}  // namespace tutti::codegen::testing
