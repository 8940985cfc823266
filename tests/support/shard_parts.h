// Parts of tensors for simulated ranks: cuts of a dim, terms of a value, and the way back.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tutti/core/placement.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::testing {

// Where the ranges of the ranks begin in a dim of `size`; n + 1 borders.
enum class Cut { chunk, halving, growing };

inline std::vector<int64_t> cut_borders(int64_t size, int n, Cut cut) {
  std::vector<int64_t> borders(static_cast<size_t>(n) + 1, 0);
  if (cut == Cut::halving && (n & (n - 1)) == 0) {
    borders[static_cast<size_t>(n)] = size;
    for (int width = n; width > 1; width /= 2) {
      for (int r = 0; r < n; r += width) {
        const int64_t a = borders[static_cast<size_t>(r)], b = borders[static_cast<size_t>(r + width)];
        borders[static_cast<size_t>(r + width / 2)] = a + (b - a + 1) / 2;
      }
    }
    return borders;
  }
  const int64_t chunk = (size + n - 1) / n;
  for (int r = 0; r <= n; ++r) {
    // growing: the first ranks hold little or nothing.
    borders[static_cast<size_t>(r)] = cut == Cut::growing ? size * r * r / (n * n) : std::min(size, chunk * r);
  }
  return borders;
}

// The indices of the dim that rank r holds.
inline std::vector<int64_t> local_indices(int64_t size, const Placement& p, int n, int rank, Cut cut) {
  const int64_t piece = size / p.pieces();
  const std::vector<int64_t> borders = cut_borders(piece, n, cut);
  std::vector<int64_t> result;
  for (int64_t k = 0; k < p.pieces(); ++k) {
    for (int64_t i = borders[static_cast<size_t>(rank)]; i < borders[static_cast<size_t>(rank) + 1]; ++i)
      result.push_back(k * piece + i);
  }
  return result;
}

inline Tensor dense_copy(const Tensor& t) {
  Tensor result = Tensor::empty(t.extents(), t.dtype());
  copy_elements(result, t);
  return result;
}

// The elements of `dim` named by `indices`, and the way back.
inline Tensor take(const Tensor& t, int dim, const std::vector<int64_t>& indices) {
  Extents sizes = t.extents();
  sizes[static_cast<size_t>(dim)] = static_cast<int64_t>(indices.size());
  Tensor result = Tensor::empty(sizes, t.dtype());
  facets::for_each_index(sizes, [&](const Extents& at) {
    Extents source = at;
    source[static_cast<size_t>(dim)] = indices[static_cast<size_t>(at[static_cast<size_t>(dim)])];
    facets::move_element(result, at, t, source);
  });
  return result;
}
inline void put(const Tensor& whole, const Tensor& part, int dim, const std::vector<int64_t>& indices) {
  facets::for_each_index(part.extents(), [&](const Extents& at) {
    Extents target = at;
    target[static_cast<size_t>(dim)] = indices[static_cast<size_t>(at[static_cast<size_t>(dim)])];
    facets::move_element(whole, target, part, at);
  });
}

// The terms of one element combined by halving in rank order: f32 arithmetic for the narrow floats.
template <class T>
T combine_terms(const T* terms, int n, PartialOp op) {
  if (n == 1) return terms[0];
  const int left = (n + 1) / 2;
  const T a = combine_terms(terms, left, op), b = combine_terms(terms + left, n - left, op);
  switch (op) {
    case PartialOp::max:
      return a < b || b != b ? b : a;  // NaN wins
    case PartialOp::min:
      return b < a || b != b ? b : a;
    case PartialOp::prod:
      return a * b;
    default:
      return a + b;
  }
}

inline Tensor combine(const std::vector<Tensor>& parts, PartialOp op) {
  const Tensor& first = parts[0];
  const int n = static_cast<int>(parts.size());
  Tensor result = Tensor::empty(first.extents(), first.dtype());
  const auto with = [&]<class T>(auto read, auto write) {
    std::vector<T> terms(parts.size());
    for (int64_t i = 0; i < first.numel(); ++i) {
      for (size_t r = 0; r < parts.size(); ++r) terms[r] = static_cast<T>(read(parts[r], i));
      const T whole = combine_terms(terms.data(), n, op);
      write(result, i, op == PartialOp::avg ? static_cast<T>(whole / static_cast<T>(n)) : whole);
    }
  };
  if (!is_floating(first.dtype())) with.operator()<int64_t>(facets::read_int64, facets::write_int64);
  else if (first.dtype() == DType::f64) with.operator()<double>(facets::read_double, facets::write_double);
  else with.operator()<float>(facets::read_double, facets::write_double);
  return result;
}

// Terms whose combination takes the place of `t`: unequal for every rank. Extremes pick among the values of t itself,
// so that they stay in the op's domain.
inline std::vector<Tensor> split_in_terms(const Tensor& t, PartialOp op, int n, uint64_t seed) {
  std::vector<Tensor> terms;
  for (int r = 0; r < n; ++r) {
    if (op == PartialOp::max || op == PartialOp::min) {
      Tensor term = dense_copy(t);
      const Tensor source = dense_copy(t);
      for (int64_t i = 0; i < t.numel(); ++i)
        facets::move_element(term.view_as({t.numel()}, {1}, 0), {i}, source.view_as({t.numel()}, {1}, 0),
                             {(i * 7 + r * 5 + static_cast<int64_t>(seed)) % t.numel()});
      terms.push_back(term);
    } else if (op == PartialOp::prod) {
      terms.push_back(facets::sample_tensor(seed + 31 * static_cast<uint64_t>(r), t.extents(), t.dtype(), 0.9, 1.2));
    } else {
      terms.push_back(
          facets::sample_tensor(seed + 31 * static_cast<uint64_t>(r), t.extents(), t.dtype(), -2.0 - r, 3.0 + r));
    }
  }
  return terms;
}

// The value that changes no maximum (minimum).
inline void fill_extreme(const Tensor& t, PartialOp op) {
  const double infinity = std::numeric_limits<double>::infinity();
  if (is_floating(t.dtype())) return facets::fill_elements(t, op == PartialOp::max ? -infinity : infinity);
  const bool is_unsigned = t.dtype() == DType::boolean || t.dtype() == DType::u8;
  const int64_t low = is_unsigned ? 0 : std::numeric_limits<int64_t>::min() >> (64 - 8 * itemsize(t.dtype()));
  const int64_t high = t.dtype() == DType::boolean ? 1 : t.dtype() == DType::u8 ? 255 : ~low;
  for (int64_t i = 0; i < t.numel(); ++i) facets::write_int64(t, i, op == PartialOp::max ? low : high);
}

// NaN has no place in an order, so a rule about terms says nothing of it.
inline bool has_nan(const Tensor& t) {
  bool found = false;
  facets::for_each_index(t.extents(), [&](const Extents& at) {
    found = found || (is_floating(t.dtype()) && std::isnan(facets::read_double(t, facets::offset_at(t, at))));
  });
  return found;
}

}  // namespace tutti::testing
