// The optimizers of table_batched_step.h on one row: in float for kernels, in double for references.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tutti/ops/engine/tree_sum.h"
#include "tutti/ops/table_batched_step.h"
#include "tutti/ops/tables/row_lanes.h"

namespace tutti::facets {

// The numbers of a step, f32 [kRowNumbers]: a compiled graph holds attrs, and these change from step to step.
enum RowNumber : size_t {
  kRate,
  kRowEps,
  kFirstBeta,
  kFirstRest,  // 1 - beta1
  kSecondBeta,
  kSecondRest,
  kFirstCorrection,  // 1 - beta1^step
  kSecondCorrection,
  kWeightDecay,
  kDecayMode,  // TableDecay
  kLeastDecay,
  kMaxNorm,
  kRowNumbers
};

// The numbers of a step with these options.
std::vector<float> row_numbers(const TableStep& options);

// w and g have `columns` elements, which may be a part of the row's `all_columns`; `first` and `second` are the row's
// states. `idle`: the steps since the row was seen, without this one, or -1 when it never was. `squares`: the sum over
// the whole row of the squares whose mean the optimizer takes, and `new_squares` that of its new values before max_norm
// scales them; null: w and g are the whole row.
template <class Real>
struct RowOfTable {
  const Real* n;
  int64_t columns, all_columns;
  Real* w;
  const Real* g;
  Real *first, *second;
  int64_t idle;
  const Real *squares, *new_squares;

  template <class Term>
  Real sum(Term term) const {
    return tree_sum<Real, kSquaresLeaf>(0, columns, term);
  }
  // The mean over the whole row, where term(d) is that of element d.
  template <class Term>
  Real mean(Term term) const {
    return (squares ? *squares : sum(term)) / static_cast<Real>(std::max<int64_t>(all_columns, 1));
  }
  Real mean_square() const {
    // Where all leaves have 16 elements, these are lanes.
    if constexpr (std::is_same_v<Real, float>) {
      if (squares == nullptr && columns >= 16 && std::has_single_bit(static_cast<uint64_t>(columns)))
        return sum_of_squares(g, columns) / static_cast<float>(all_columns);
    }
    return mean([&](int64_t d) { return g[d] * g[d]; });
  }
  // Root of the sum of squares of the row's new values.
  Real norm() const {
    return std::sqrt(new_squares ? *new_squares : sum([&](int64_t d) { return w[d] * w[d]; }));
  }
  // Where the decay is a part of the gradient.
  Real mean_square_with_decay() const {
    return mean([&](int64_t d) {
      const Real decayed = g[d] + n[kWeightDecay] * w[d];
      return decayed * decayed;
    });
  }
};

struct SgdOfRow {
  template <class Real>
  static void step(const RowOfTable<Real>& r) {
    for (int64_t d = 0; d < r.columns; ++d) r.w[d] = r.w[d] - r.n[kRate] * r.g[d];
  }
};

struct AdagradOfRow {
  template <class Real>
  static void step(const RowOfTable<Real>& r) {
    for (int64_t d = 0; d < r.columns; ++d) {
      const Real h = r.first[d] + r.g[d] * r.g[d];
      r.first[d] = h;
      r.w[d] = r.w[d] - r.n[kRate] * r.g[d] / (std::sqrt(h) + r.n[kRowEps]);
    }
  }
};

// base^exponent by squaring, in double.
inline double integer_power(double base, int64_t exponent) {
  double result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 != 0) result *= base;
    base *= base;
  }
  return result;
}

struct RowwiseAdagrad {
  template <class Real>
  static void step(const RowOfTable<Real>& r) {
    update(r);
    if (r.n[kMaxNorm] > 0) {
      const Real norm = r.norm();
      if (norm > r.n[kMaxNorm]) {
        const Real factor = r.n[kMaxNorm] / norm;
        for (int64_t d = 0; d < r.columns; ++d) r.w[d] = r.w[d] * factor;
      }
    }
  }
  // The step without max_norm.
  template <class Real>
  static void update(const RowOfTable<Real>& r) {
    const Real rate = r.n[kRate], decay = r.n[kWeightDecay];
    const int mode = static_cast<int>(r.n[kDecayMode]);
    const bool l2 = mode == 1, shrinks = mode >= 2;
    if (mode == 3 && r.idle > 0) {
      const double power = integer_power(1 - static_cast<double>(rate) * static_cast<double>(decay), r.idle);
      const Real factor = std::max(r.n[kLeastDecay], static_cast<Real>(power));
      for (int64_t d = 0; d < r.columns; ++d) r.w[d] = r.w[d] * factor;
    }
    const Real h = r.first[0] + (l2 ? r.mean_square_with_decay() : r.mean_square());
    r.first[0] = h;
    const Real mu = rate / (std::sqrt(h) + r.n[kRowEps]);
    const Real keep = l2 ? Real{1} - mu * decay : shrinks ? Real{1} - rate * decay : Real{1};
    for (int64_t d = 0; d < r.columns; ++d) r.w[d] = keep * r.w[d] - mu * r.g[d];
  }
};

template <bool kRowwise>
struct AdamOfRow {
  template <class Real>
  static void step(const RowOfTable<Real>& r) {
    const Real* n = r.n;
    Real of_row = 0;
    if constexpr (kRowwise) {
      r.second[0] = n[kSecondBeta] * r.second[0] + n[kSecondRest] * r.mean_square();
      of_row = std::sqrt(r.second[0] / n[kSecondCorrection]) + n[kRowEps];
    }
    for (int64_t d = 0; d < r.columns; ++d) {
      const Real g = r.g[d], m = n[kFirstBeta] * r.first[d] + n[kFirstRest] * g;
      r.first[d] = m;
      Real below = of_row;
      if constexpr (!kRowwise) {
        const Real v = n[kSecondBeta] * r.second[d] + n[kSecondRest] * (g * g);
        r.second[d] = v;
        below = std::sqrt(v / n[kSecondCorrection]) + n[kRowEps];
      }
      r.w[d] = r.w[d] - n[kRate] * (m / n[kFirstCorrection] / below + n[kWeightDecay] * r.w[d]);
    }
  }
};

}  // namespace tutti::facets
