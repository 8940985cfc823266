// x B for B with neighbouring k: the lanes of a register are leaves. Private to stream.cpp.
//
// A group is a register of sums: as many leaves of a column as it has lanes, or all leaves of neighbouring columns when
// a column has fewer. It walks its leaves in step: squares of items are transposed in registers, so that each register
// then holds one item of every lane. The groups that are walked together, a window, are the same leaves of neighbouring
// columns: they share x and hide each other's latency. What comes later is asked for meanwhile, line after line in the
// order of memory: asked for in the order of lanes, it comes at half the rate.
//
// What registers do is in the forms: NarrowLeaves (stream_narrow.h) and WideLeaves (stream_wide.h).
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <type_traits>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/stream_arithmetic.h"
#include "tutti/codegen/gemm/workspace.h"

namespace tutti::codegen::stream {

// The starting addresses of the lanes of a window, [group][lane]. Usually they are a fixed distance apart in all
// groups. An address that the compiler does not see through is added to small multiples of the distance by the loads
// themselves; otherwise each lane would have a pointer that is advanced.
template <class S, int64_t kGroups, int64_t kLanes>
struct EvenLanes {
  const S* first[kGroups];
  int64_t distance, three_distances;
  EvenLanes() = default;
  explicit EvenLanes(int64_t apart) : distance(apart), three_distances(3 * apart) { asm("" : "+r"(three_distances)); }
  struct Place {
    const S *low, *high;
    int64_t distance, three_distances;
    const S* operator[](int64_t lane) const {
      const int64_t step = lane % (kLanes / 2);
      return (lane < kLanes / 2 ? low : high) + (step == 3 ? three_distances : step * distance);
    }
  };
  Place at(int64_t group, int64_t k) const {
    const S* low = first[group] + k;
    asm("" : "+r"(low));
    return {low, low + kLanes / 2 * distance, distance, three_distances};
  }
};
template <class S, int64_t kGroups, int64_t kLanes>
struct AnyLanes {
  const S* begin[kGroups][kLanes];
  struct Place {
    const S* const* begin;
    int64_t k;
    const S* operator[](int64_t lane) const { return begin[lane] + k; }
  };
  Place at(int64_t group, int64_t k) const { return {begin[group], k}; }
};

// Memory that is asked for, line after line: a piece for each group of a window, a fixed distance apart.
template <class S>
class LinesOfGroups {
 public:
  LinesOfGroups(const S* first, int64_t distance) : next_(first), distance_(distance) {}

  [[gnu::always_inline]] void ask(int64_t group, int64_t line) const {
    const char* at = reinterpret_cast<const char*>(next_ + group * distance_);
    asm("" : "+r"(at));  // else the compiler keeps a pointer for each line
    _mm_prefetch(at + line * kLine, _MM_HINT_T0);
  }
  [[gnu::always_inline]] void advance(int64_t lines) { next_ += lines * kLine / static_cast<int64_t>(sizeof(S)); }

 private:
  static constexpr int64_t kLine = 64;
  const S* next_;
  int64_t distance_;
};

// Whether the tree is a perfect one, whose leaves are joined as neighbours, then these sums as neighbours, and so on.
inline bool joins_neighbours(const ContractionTree& tree) {
  const size_t leaves = tree.leaf_lengths.size();
  if (!std::has_single_bit(leaves)) return false;
  for (size_t leaf = 0; leaf < leaves; ++leaf)
    if (tree.merges[leaf] != std::countr_one(leaf)) return false;
  return true;
}

template <class A, class Form>
class LeafLanes {
  using T = typename A::Sum;
  using S = typename A::Stored;
  static constexpr int64_t kLanes = A::Block::kSide;
  static constexpr int64_t kGroups = Form::kGroups;
  static constexpr int64_t kMostRows = 4;             // of x, whose sums are registers at a time
  static constexpr int64_t kGroupsTogether = kLanes;  // of a column each, whose trees are joined side by side

 public:
  // x: packed, [items][rows]. The tree must join neighbours; leaves of pairs must be equal. `memory` is the object's as
  // long as it lives.
  LeafLanes(const ContractionTree& tree, const T* x, int64_t rows, Workspace& memory)
      : tree_(tree),
        rows_(rows),
        leaves_(static_cast<int64_t>(tree.leaf_lengths.size())),
        groups_of_column_(std::max<int64_t>(leaves_ / kLanes, 1)),
        columns_of_group_(std::max<int64_t>(kLanes / leaves_, 1)),
        length_(*std::min_element(tree.leaf_lengths.begin(), tree.leaf_lengths.end())),
        is_even_(*std::max_element(tree.leaf_lengths.begin(), tree.leaf_lengths.end()) == length_),
        groups_ahead_(
            std::max<int64_t>(Form::kBytesAhead / (kGroups * kLanes * length_ * static_cast<int64_t>(sizeof(S))), 1)) {
    const int64_t lane_x_size = groups_of_column_ * x_rows() * rows * kLanes;
    T* to = reinterpret_cast<T*>(
        memory.reserve(lane_x_size * static_cast<int64_t>(sizeof(T)) + leaves_ * static_cast<int64_t>(sizeof(Leaf))));
    lane_x_ = to;
    Leaf* leaf = reinterpret_cast<Leaf*>(to + lane_x_size);
    leaf_ = leaf;
    for (const int32_t length : tree.leaf_lengths) {
      *leaf++ = {k_, x};
      k_ += length;
      x += items_of(A::kKind, length) * rows;
    }
    for_each_block([&](int64_t row, auto count) {
      for (int64_t group = 0; group < groups_of_column_; ++group)
        for (int64_t i = 0; i < x_rows(); ++i)
          for (int64_t r = row; r < row + count; ++r)
            for (int64_t lane = 0; lane < kLanes; ++lane)
              *to++ = leaf_[(group * kLanes + lane) % leaves_].x[i * rows + r];
    });
  }

  // y[r * y_stride + j] for `columns` columns, column_stride elements apart.
  void run(const S* b, int64_t column_stride, int64_t columns, T* y, int64_t y_stride, Workspace& memory) const {
    const int64_t width = kGroupsTogether * std::max(leaves_, kLanes), together = kGroupsTogether * columns_of_group_;
    T* const sums = reinterpret_cast<T*>(memory.reserve(rows_ * width * static_cast<int64_t>(sizeof(T))));
    for (int64_t first = 0; first < columns; first += together) {
      const int64_t some = std::min(together, columns - first);
      const S* at = b + first * column_stride;
      {
        [[maybe_unused]] const typename A::Mode mode;
        const bool in_step = is_even_ && (leaves_ == 1 || leaves_ >= kLanes || column_stride == k_);
        if (in_step && some % columns_of_group_ == 0) walk<Even>(at, column_stride, some, sums, width);
        else walk<Any>(at, column_stride, some, sums, width);
      }
      if constexpr (A::kPerItem == 1) add_rest(at, column_stride, some, sums, width);
      for (int64_t r = 0; r < rows_; ++r) {
        join(sums + r * width, width);
        std::copy_n(sums + r * width, some, y + r * y_stride + first);
      }
    }
  }

 private:
  using Even = EvenLanes<S, kGroups, kLanes>;
  using Any = AnyLanes<S, kGroups, kLanes>;
  struct Leaf {
    int64_t first_k;
    const T* x;
  };

  // kGroups groups of columns, whose leaves are walked group after group.
  template <class Lanes>
  struct Window {
    const LeafLanes& of;
    const S* b;
    int64_t column_stride, columns, column;

    int64_t groups() const { return of.groups_of_column_; }
    int64_t length() const { return of.length_; }
    // How far apart the sums of neighbouring groups of columns stand.
    int64_t distance() const { return of.groups_of_column_ * kLanes; }
    Lanes lanes(int64_t group) const {
      return of.template lanes<Lanes>(b, column_stride, columns, column, group * kLanes);
    }
    // What is asked for meanwhile: a group that is walked later, maybe one of the columns after these.
    LinesOfGroups<S> lines(int64_t group) const {
      int64_t at = column;
      for (group += of.groups_ahead_; group >= groups(); group -= groups()) at += kGroups * of.columns_of_group_;
      return {b + at * column_stride + of.leaf_[group * kLanes].first_k, of.columns_of_group_ * column_stride};
    }
  };

  // Rows of x for the items of a leaf.
  int64_t x_rows() const { return items_of(A::kKind, length_); }

  // visit(first row, rows) for blocks of at most kMostRows rows, nearly equal. The number of rows is a constant.
  template <class Visit>
  void for_each_block(Visit visit) const {
    const int64_t blocks = (rows_ + kMostRows - 1) / kMostRows;
    for (int64_t block = 0; block < blocks; ++block) {
      const int64_t row = rows_ * block / blocks, count = rows_ * (block + 1) / blocks - row;
      if (count == 1) visit(row, std::integral_constant<int, 1>{});
      else if (count == 2) visit(row, std::integral_constant<int, 2>{});
      else if (count == 3) visit(row, std::integral_constant<int, 3>{});
      else visit(row, std::integral_constant<int, 4>{});
    }
  }

  // The leaves from `leaf` on of the groups from `column` on; behind the last column it is repeated.
  template <class Lanes>
  Lanes lanes(const S* b, int64_t column_stride, int64_t columns, int64_t column, int64_t leaf) const {
    if constexpr (std::is_same_v<Lanes, EvenLanes<S, kGroups, kLanes>>) {
      Lanes even(leaves_ == 1 ? column_stride : length_);
      for (int64_t g = 0; g < kGroups; ++g, column += columns_of_group_)
        even.first[g] = b + std::min(column, columns - columns_of_group_) * column_stride + leaf_[leaf].first_k;
      return even;
    } else {
      Lanes any;
      for (int64_t g = 0; g < kGroups; ++g, column += columns_of_group_)
        for (int64_t lane = 0; lane < kLanes; ++lane) {
          const int64_t of = std::min(column + (leaves_ < kLanes ? lane / leaves_ : 0), columns - 1);
          any.begin[g][lane] = b + of * column_stride + leaf_[(leaf + lane) % leaves_].first_k;
        }
      return any;
    }
  }

  // sums[row][column][leaf] over the items that all leaves have.
  template <class Lanes>
  void walk(const S* b, int64_t column_stride, int64_t columns, T* sums, int64_t width) const {
    for (int64_t column = 0; column < columns; column += kGroups * columns_of_group_) {
      const Window<Lanes> window = {*this, b, column_stride, columns, column};
      const T* x = lane_x_;
      for_each_block([&](int64_t row, auto count) {
        Form::template chains<count>(window, x, sums + row * width + column * leaves_, width);
        x += groups_of_column_ * x_rows() * count * kLanes;
      });
    }
  }

  // Leaves that are longer than the shortest go on alone.
  void add_rest(const S* b, int64_t column_stride, int64_t columns, T* sums, int64_t width) const {
    for (int64_t leaf = 0; leaf < leaves_; ++leaf)
      for (int64_t i = length_; i < tree_.leaf_lengths[static_cast<size_t>(leaf)]; ++i)
        for (int64_t r = 0; r < rows_; ++r) {
          const T x = leaf_[leaf].x[i * rows_ + r];
          for (int64_t column = 0; column < columns; ++column) {
            T& sum = sums[r * width + column * leaves_ + leaf];
            sum = std::fma(x, static_cast<T>(simd::widen(b[column * column_stride + leaf_[leaf].first_k + i])), sum);
          }
        }
  }

  // The trees of a row: sums of `width` leaves, column after column, become sums of columns.
  void join(T* sums, int64_t width) const {
    using Block = typename A::Block;
    for (int64_t leaves = leaves_; leaves > 1; leaves /= 2) {
      width /= 2;
      for (int64_t i = 0; i < width; i += Block::kSide)
        Block::store(sums + i,
                     Block::add_neighbours(Block::load(sums + 2 * i), Block::load(sums + 2 * i + Block::kSide)));
    }
  }

  const ContractionTree& tree_;
  int64_t rows_, leaves_;
  int64_t groups_of_column_, columns_of_group_;  // one of them is 1
  int64_t length_;                               // of the shortest leaf
  bool is_even_;                                 // all leaves are as long
  int64_t groups_ahead_;                         // that are asked for
  int64_t k_ = 0;
  const Leaf* leaf_;
  const T* lane_x_;  // [block of rows][group of a column][x_rows()][row][lane]
};

}  // namespace tutti::codegen::stream
