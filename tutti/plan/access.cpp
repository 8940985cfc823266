#include "tutti/plan/access.h"

#include <algorithm>

namespace tutti::graph {
namespace {

bool in_row(const Space& space, int64_t dim) {
  return std::find(space.row.begin(), space.row.end(), dim) != space.row.end();
}

// For each dim of `coarse`, the dims [first, second) of `fine` that split it. Dims of one element belong to the dim in
// front of them. Nothing when some border of `coarse` is none of `fine`.
std::optional<InlineDims<std::pair<int, int>>> splits_of(const Extents& coarse, const Extents& fine) {
  InlineDims<std::pair<int, int>> splits;
  int at = 0;
  for (size_t d = 0; d < coarse.size(); ++d) {
    const int begin = at;
    int64_t product = 1;
    while (at < fine.ndim() && product < coarse[d]) product *= fine[static_cast<size_t>(at++)];
    if (product != coarse[d]) return std::nullopt;
    splits.push_back({begin, at});
  }
  return splits;
}

Extents without_ones(const Extents& sizes) {
  Extents kept;
  for (const int64_t n : sizes) {
    if (n != 1) kept.push_back(n);
  }
  return kept;
}

// The coarsest sizes that both lists are groupings of, both without dims of one element.
std::optional<Extents> common_sizes(const Extents& a, const Extents& b) {
  std::vector<int64_t> sizes;
  size_t i = 0, j = 0;
  int64_t x = a.empty() ? 1 : a[0], y = b.empty() ? 1 : b[0];
  while (i < a.size() && j < b.size()) {
    const int64_t n = std::min(x, y);
    if (n == 0 || x % n != 0 || y % n != 0) return std::nullopt;
    sizes.push_back(n);
    x /= n, y /= n;
    if (x == 1 && ++i < a.size()) x = a[i];
    if (y == 1 && ++j < b.size()) y = b[j];
  }
  if (i < a.size() || j < b.size() || sizes.size() > kMaxDims) return std::nullopt;
  return Extents(std::span<const int64_t>(sizes));
}

}  // namespace

Access access_of(const Value& v, const Space& space) {
  Access a{v.buffer, v.version, v.dtype, v.offset, Extents(space.sizes.size(), 0)};
  const size_t shift = space.sizes.size() - v.sizes.size();
  for (size_t d = 0; d < v.sizes.size(); ++d) {
    if (v.sizes[d] != 1) a.strides[shift + d] = v.strides[d];
  }
  return a;
}

Access per_row_access_of(const Value& v, const Space& space) {
  Access a{v.buffer, v.version, v.dtype, v.offset, Extents(space.sizes.size(), 0)};
  int64_t stride = 1;
  for (int d = space.sizes.ndim() - 1; d >= 0; --d) {
    if (in_row(space, d)) continue;
    if (space.sizes[static_cast<size_t>(d)] != 1) a.strides[static_cast<size_t>(d)] = stride;
    stride *= space.sizes[static_cast<size_t>(d)];
  }
  return a;
}

std::optional<Space> common_space(const Space& a, const Space& b) {
  Space space;
  if (a.sizes == b.sizes) {
    space.sizes = a.sizes;
  } else {
    const Extents left = without_ones(a.sizes), right = without_ones(b.sizes);
    const auto sizes = common_sizes(left, right);
    if (!sizes) return std::nullopt;
    space.sizes = *sizes;
  }
  const auto rows_in = [&](const Space& from) -> std::optional<Dims> {
    if (from.sizes == space.sizes) return from.row;
    const auto splits = splits_of(from.sizes, space.sizes);
    if (!splits) return std::nullopt;
    Dims row;
    for (const int64_t d : from.row) {
      const auto [begin, end] = (*splits)[static_cast<size_t>(d)];
      for (int k = begin; k < end; ++k) row.push_back(k);
    }
    return row;
  };
  const auto row_a = rows_in(a), row_b = rows_in(b);
  if (!row_a || !row_b) return std::nullopt;
  if (!a.row.empty() && !b.row.empty() && !(*row_a == *row_b)) return std::nullopt;
  space.row = a.row.empty() ? *row_b : *row_a;
  // A row of one element has no dim left to stand for it.
  if (space.row.empty() && !(a.row.empty() && b.row.empty())) return std::nullopt;
  return space;
}

Access refined(const Access& a, const Space& coarse, const Space& fine) {
  if (coarse.sizes == fine.sizes) return a;
  const auto splits = splits_of(coarse.sizes, fine.sizes);
  TUTTI_ASSERT(splits.has_value(), "{} does not split {}", fine.sizes, coarse.sizes);
  Access out = a;
  out.strides = Extents(fine.sizes.size(), 0);
  for (size_t d = 0; d < coarse.sizes.size(); ++d) {
    const auto [begin, end] = (*splits)[d];
    int64_t stride = a.strides[d];
    for (int k = end - 1; k >= begin; --k) {
      const int64_t n = fine.sizes[static_cast<size_t>(k)];
      if (n != 1) out.strides[static_cast<size_t>(k)] = stride;
      stride *= n;
    }
  }
  return out;
}

}  // namespace tutti::graph
