// x B for B with neighbouring k: the lanes of a register are leaves. Private to gemm_stream.cpp.
//
// The leaves of a column, or of some neighbouring columns when one has too few, fill groups of lanes. A group walks its
// leaves in step: a square of items is transposed in registers, so that each holds one item of every lane.
#pragma once

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <vector>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/stream_arithmetic.h"

namespace tutti::codegen::stream {

// Bytes of B that are asked for ahead, of the columns that come next.
inline constexpr int64_t kBytesAhead = 16 << 10;

// The starting addresses of the lanes of a group. Usually they are a fixed distance apart, which takes a few registers
// instead of a table.
template <class S, int64_t kLanes>
struct EvenLanes {
  const S* first;
  int64_t distance;
  EvenLanes(const S* b, const int64_t* offsets) : first(b + offsets[0]), distance(offsets[1] - offsets[0]) {}
  static bool fit(const int64_t* offsets) {
    for (int64_t lane = 1; lane < kLanes; ++lane)
      if (offsets[lane] - offsets[lane - 1] != offsets[1] - offsets[0]) return false;
    return true;
  }
  const S* operator[](int64_t lane) const { return first + lane * distance; }
};
// At a distance that is known while this is compiled, eight lanes need one register together instead of three and more.
template <class S, int64_t kLanes, int64_t kDistance>
struct FixedLanes {
  const S* first;
  FixedLanes(const S* b, const int64_t* offsets) : first(b + offsets[0]) {}
  static bool fit(const int64_t* offsets) {
    return EvenLanes<S, kLanes>::fit(offsets) && offsets[1] - offsets[0] == kDistance;
  }
  const S* operator[](int64_t lane) const { return first + lane * kDistance; }
};
template <class S, int64_t kLanes>
struct AnyLanes {
  const S* begin[kLanes];
  AnyLanes(const S* b, const int64_t* offsets) {
    for (int64_t lane = 0; lane < kLanes; ++lane) begin[lane] = b + offsets[lane];
  }
  static bool fit(const int64_t*) { return true; }
  const S* operator[](int64_t lane) const { return begin[lane]; }
};

template <class A>
class LeafLanes {
  using T = typename A::Sum;
  using S = typename A::Stored;
  using Block = typename A::Block;
  using Vector = typename A::Vector;
  static constexpr int64_t kLanes = Block::kSide;
  static constexpr int64_t kGroupsAtOnce = 2;  // chains that hide each other's latency

 public:
  // x: packed, [items][rows], one row to three. Leaves of pairs must be equal.
  LeafLanes(const ContractionTree& tree, const T* x, int64_t rows)
      : tree_(tree),
        x_(x),
        rows_(rows),
        leaves_(static_cast<int64_t>(tree.leaf_lengths.size())),
        unit_columns_(std::max<int64_t>(kGroupsAtOnce * kLanes / leaves_, 1)),
        groups_((unit_columns_ * leaves_ + kLanes * kGroupsAtOnce - 1) / (kLanes * kGroupsAtOnce) * kGroupsAtOnce),
        length_(*std::min_element(tree.leaf_lengths.begin(), tree.leaf_lengths.end())),
        items_(length_ / A::kPerItem) {
    std::vector<const T*> of_leaf, from;
    for (const int32_t length : tree.leaf_lengths) {
      first_k_.push_back(k_);
      of_leaf.push_back(x);
      k_ += length;
      x += items_of(A::kKind, length) * rows;
    }
    for (int64_t lane = 0; lane < groups_ * kLanes; ++lane) from.push_back(of_leaf[static_cast<size_t>(leaf_of(lane))]);
    lane_x_.resize(static_cast<size_t>(groups_ * x_rows() * rows * kLanes));
    T* to = lane_x_.data();
    for (int64_t g = 0; g < groups_; ++g)
      for (int64_t i = 0; i < x_rows() * rows; ++i)
        for (int64_t lane = 0; lane < kLanes; ++lane) *to++ = from[static_cast<size_t>(g * kLanes + lane)][i];
  }

  // y[r * y_stride + j] for `columns` columns, column_stride elements apart.
  void run(const S* b, int64_t column_stride, int64_t columns, T* y, int64_t y_stride) const {
    switch (rows_) {
      case 1:
        return run<1>(b, column_stride, columns, y, y_stride);
      case 2:
        return run<2>(b, column_stride, columns, y, y_stride);
      default:
        return run<3>(b, column_stride, columns, y, y_stride);
    }
  }

 private:
  // Lanes count through the columns of a unit and their leaves; those that are left over repeat the last.
  int64_t last_lane() const { return unit_columns_ * leaves_ - 1; }
  int64_t leaf_of(int64_t lane) const { return std::min(lane, last_lane()) % leaves_; }
  int64_t column_of(int64_t lane) const { return std::min(lane, last_lane()) / leaves_; }

  // Computes the offsets at which the lanes of a unit of `columns` columns begin, relative to its first column.
  void find_lanes(int64_t column_stride, int64_t columns, std::vector<int64_t>& offsets) const {
    for (int64_t lane = 0; lane < groups_ * kLanes; ++lane) {
      const int64_t first_k = first_k_[static_cast<size_t>(leaf_of(lane))];
      offsets[static_cast<size_t>(lane)] = std::min(column_of(lane), columns - 1) * column_stride + first_k;
    }
  }

  template <int kRows>
  void run(const S* b, int64_t column_stride, int64_t columns, T* y, int64_t y_stride) const {
    const int64_t ahead =
        (kBytesAhead / static_cast<int64_t>(sizeof(S)) / (k_ * unit_columns_) + 1) * unit_columns_ * column_stride;
    const int64_t unit_size = groups_ * kLanes * kRows;
    std::vector<T> sums(static_cast<size_t>(unit_size * kLanes)), pending(static_cast<size_t>(leaves_ * kLanes));
    std::vector<int64_t> offsets(static_cast<size_t>(groups_ * kLanes));
    find_lanes(column_stride, unit_columns_, offsets);
    // Columns whose trees are joined side by side.
    const int64_t together = kLanes * unit_columns_;
    for (int64_t first = 0; first < columns; first += together) {
      const int64_t end = std::min(first + together, columns);
      T* unit = sums.data();
      for (int64_t column = first; column < end; column += unit_columns_, unit += unit_size) {
        if (columns - column < unit_columns_) find_lanes(column_stride, columns - column, offsets);
        for (int64_t g = 0; g < groups_; g += kGroupsAtOnce) {
          const int64_t* at = offsets.data() + g * kLanes;
          const S* from = b + column * column_stride;
          const T* x = lane_x_.data() + g * x_rows() * kRows * kLanes;
          T* to = unit + g * kLanes * kRows;
          const auto walked_as = [&]<class Lanes>(std::type_identity<Lanes>) {
            const bool fits = Lanes::fit(at) && Lanes::fit(at + kLanes);
            if (!fits) return false;
            [[maybe_unused]] const typename A::Mode mode;
            chains<kRows>(Lanes(from, at), Lanes(from, at + kLanes), x, ahead, to);
            return true;
          };
          // Leaves of k = 2^i, of k = 3 * 2^i, of any k, and columns side by side.
          bool done = false;
          if constexpr (std::is_same_v<T, float> &&
                        !std::is_same_v<S, float16>) {  // the common types are worth two more loops
            done = walked_as(std::type_identity<FixedLanes<S, kLanes, kContractionLeaf>>()) ||
                   walked_as(std::type_identity<FixedLanes<S, kLanes, kContractionLeaf / 4 * 3>>());
          }
          static_cast<void>(done || walked_as(std::type_identity<EvenLanes<S, kLanes>>()) ||
                            walked_as(std::type_identity<AnyLanes<S, kLanes>>()));
        }
      }
      for (int64_t j = 0; j < unit_columns_; ++j)
        for (int64_t r = 0; r < kRows; ++r)
          combine(sums.data(), j, r, b, column_stride, first, columns, pending.data(), y + r * y_stride);
    }
  }

  // Rows of x for the items of a leaf.
  int64_t x_rows() const { return items_of(A::kKind, length_); }

  // block[i] holds item `item` + i of every lane.
  template <class Lanes>
  [[gnu::always_inline]] static void load_square(const Lanes& lanes, int64_t item, Vector (&block)[kLanes]) {
    for (int64_t i = 0; i < kLanes; ++i) block[i] = A::load_items(lanes[i] + item * A::kPerItem);
    Block::transpose(block);
  }
  // sum += items [begin, kLanes) of the square at `item`.
  template <int kRows, class Lanes>
  [[gnu::always_inline]] static void add_square(const Lanes& lanes, int64_t item, int64_t begin, const T* x,
                                                Vector (&sum)[kRows]) {
    Vector block[kLanes];
    load_square(lanes, item, block);
    for (int64_t i = begin; i < kLanes; ++i)
      for (int64_t r = 0; r < kRows; ++r)
        sum[r] = A::add_items(block[i], x + ((item + i) * A::kXRows * kRows + r) * kLanes, kRows * kLanes, sum[r]);
  }
  // sum += the last k of an odd leaf, which has no partner.
  template <int kRows, class Lanes>
  [[gnu::always_inline]] static void add_alone(const Lanes& lanes, int64_t k, const T* x, Vector (&sum)[kRows]) {
    S last[kLanes];
    for (int64_t i = 0; i < kLanes; ++i) last[i] = lanes[i][k];
    for (int64_t r = 0; r < kRows; ++r) sum[r] = A::add_alone(Block::load(last), Block::load(x + r * kLanes), sum[r]);
  }
  // A function that does nothing else has no effect in the eyes of the compiler, which drops calls of it.
  template <class Lanes>
  [[gnu::always_inline]] static void prefetch(const Lanes& lanes, int64_t k) {
    for (int64_t i = 0; i < kLanes; ++i) _mm_prefetch(reinterpret_cast<const char*>(lanes[i] + k), _MM_HINT_T1);
  }

  // sums[group][row][lane] over the first items_ items of each lane, of two groups.
  template <int kRows, class Lanes>
  TUTTI_OPAQUE_CALL void chains(const Lanes& left, const Lanes& right, const T* x, int64_t ahead, T* sums) const {
    Vector a[kRows], b[kRows];
    for (int64_t r = 0; r < kRows; ++r) a[r] = b[r] = Block::splat(T{-0.0});
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(S)) / A::kPerItem;
    const T* right_x = x + x_rows() * kRows * kLanes;
    const int64_t whole = items_ / kLanes * kLanes;
    int64_t item = 0;
    for (; item + kLine <= whole; item += kLine) {
      prefetch(left, item * A::kPerItem + ahead);
      prefetch(right, item * A::kPerItem + ahead);
#pragma GCC unroll 1
      for (int64_t part = item; part < item + kLine; part += kLanes) {
        add_square<kRows>(left, part, 0, x, a);
        add_square<kRows>(right, part, 0, right_x, b);
      }
    }
    for (; item < whole; item += kLanes) {
      add_square<kRows>(left, item, 0, x, a);
      add_square<kRows>(right, item, 0, right_x, b);
    }
    if (whole < items_) {  // a square that reaches back into what is done
      add_square<kRows>(left, items_ - kLanes, kLanes - (items_ - whole), x, a);
      add_square<kRows>(right, items_ - kLanes, kLanes - (items_ - whole), right_x, b);
    }
    if constexpr (A::kPerItem == 2) {
      if (length_ % 2 != 0) {
        const int64_t row = items_ * A::kXRows * kRows * kLanes;
        add_alone<kRows>(left, length_ - 1, x + row, a);
        add_alone<kRows>(right, length_ - 1, right_x + row, b);
      }
    }
    for (int64_t r = 0; r < kRows; ++r) {
      Block::store(sums + r * kLanes, a[r]);
      Block::store(sums + (kRows + r) * kLanes, b[r]);
    }
  }

  // The trees of column `j` of each unit, side by side; leaves that are longer than the shortest go on alone.
  void combine(const T* sums, int64_t j, int64_t row, const S* b, int64_t column_stride, int64_t first, int64_t columns,
               T* pending, T* y) const {
    const int64_t unit_size = groups_ * kLanes * rows_;
    alignas(64) T group[kLanes * kLanes];  // of lanes: element u of row i is lane i of unit u
    for (int64_t leaf = 0; leaf < leaves_; ++leaf) {
      const int64_t item = j * leaves_ + leaf;
      if (leaf == 0 || item % kLanes == 0) {
        Vector block[kLanes];
        for (int64_t u = 0; u < kLanes; ++u)
          block[u] = Block::load(sums + u * unit_size + (item / kLanes * rows_ + row) * kLanes);
        Block::transpose(block);
        for (int64_t i = 0; i < kLanes; ++i) Block::store(group + i * kLanes, block[i]);
      }
      T* mine = group + item % kLanes * kLanes;
      if constexpr (A::kPerItem == 1) {
        const int64_t begin = first_k_[static_cast<size_t>(leaf)];
        for (int64_t k = begin + length_; k < begin + tree_.leaf_lengths[static_cast<size_t>(leaf)]; ++k) {
          for (int64_t u = 0; u < kLanes; ++u) {
            const int64_t column = std::min(first + u * unit_columns_ + j, columns - 1);
            mine[u] =
                std::fma(x_[k * rows_ + row], static_cast<T>(simd::widen(b[column * column_stride + k])), mine[u]);
          }
        }
      }
      Vector sum = Block::load(mine);
      for (int merges = tree_.merges[static_cast<size_t>(leaf)]; merges > 0; --merges, pending -= kLanes)
        sum = Block::add(Block::load(pending - kLanes), sum);
      Block::store(pending, sum);
      pending += kLanes;
    }
    for (int64_t u = 0; u < kLanes; ++u) {
      if (const int64_t column = first + u * unit_columns_ + j; column < columns) y[column] = pending[u - kLanes];
    }
  }

  const ContractionTree& tree_;
  const T* x_;
  int64_t rows_, leaves_;
  int64_t unit_columns_;  // that fill groups together
  int64_t groups_;
  int64_t length_;  // of the shortest leaf
  int64_t items_;   // that are whole, of the same
  int64_t k_ = 0;
  std::vector<int64_t> first_k_;
  std::vector<T> lane_x_;  // [group][x_rows()][rows][lane]
};

}  // namespace tutti::codegen::stream
