// x B for B with neighbouring columns, a block of columns at a time. Private to stream.cpp.
#pragma once

#include <algorithm>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/stream_arithmetic.h"

namespace tutti::codegen::stream {

// Rows of x whose sums are registers at a time, and as many k as leave registers for their elements: three by three is
// the most work for a sum that is loaded and stored.
constexpr int k_at_once(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : rows == 3 ? 3 : 2; }
// Rows of B that are asked for ahead. One row of x alone reads so many streams that the processor follows by itself.
inline constexpr int64_t kRowsAhead = 8;

template <class A>
struct ColumnBlock {
  using T = typename A::Sum;
  using S = typename A::Stored;
  using Block = typename A::Block;
  using Vector = typename A::Vector;

  const T* x;  // packed, [items][rows]
  int64_t rows;
  const S* b;
  int64_t b_stride;
  int64_t columns;
  int64_t width;  // columns in whole registers

  // visit(column, load) for the registers of a row of B, where load(p) gives the elements at p; line(column) at the
  // begin of each line.
  template <class Line, class Visit>
  void for_registers(Line line, Visit visit) const {
    const auto load_all = [](const S* p) { return Block::load(p); };
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(S));
    int64_t j = 0;
    for (; j + kLine <= columns; j += kLine) {
      line(j);
      for (int64_t part = 0; part < kLine; part += Block::kSide) visit(j + part, load_all);
    }
    for (; j + Block::kSide <= columns; j += Block::kSide) visit(j, load_all);
    if (j < columns) visit(j, [&](const S* p) { return simd::load_part<T>(p, columns - j); });
  }

  // sums[r][j] += kItems items, for the kRows rows from `row` on. at: the first of their rows of B, x_row: of packed x.
  template <int kRows, int kItems>
  void add(const S* at, const T* x_row, int64_t row, T* sums) const {
    typename A::Factor factor[kRows][kItems];
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < kItems; ++i) factor[r][i] = A::factor(x_row + i * A::kXRows * rows + row + r, rows);
    T* const sums_of_row = sums + row * width;
    const auto prefetch = [&](int64_t j) {
      if (kRows == 1 || row > 0) return;
      for (int i = 0; i < kItems * A::kPerItem; ++i)
        _mm_prefetch(reinterpret_cast<const char*>(at + (i + kRowsAhead) * b_stride + j), _MM_HINT_T0);
    };
    for_registers(prefetch, [&](int64_t j, auto load) {
      Vector sum[kRows];
      for (int r = 0; r < kRows; ++r) sum[r] = Block::load(sums_of_row + r * width + j);
      for (int i = 0; i < kItems; ++i) {
        const typename A::Columns elements = A::columns(at + i * A::kPerItem * b_stride + j, b_stride, load);
        for (int r = 0; r < kRows; ++r) sum[r] = A::add(factor[r][i], elements, sum[r]);
      }
      for (int r = 0; r < kRows; ++r) Block::store(sums_of_row + r * width + j, sum[r]);
    });
  }

  // kItems or fewer items.
  template <int kRows, int kItems>
  void add_rows(const S* at, const T* x_row, int64_t items, int64_t row, T* sums) const {
    if (items == kItems) return add<kRows, kItems>(at, x_row, row, sums);
    for (int64_t i = 0; i < items; ++i)
      add<kRows, 1>(at + i * A::kPerItem * b_stride, x_row + i * A::kXRows * rows, row, sums);
  }
  template <int kLargest>
  void leaf(const S* at, const T* x_row, int64_t length, T* sums) const {
    constexpr int kItems = k_at_once(kLargest) / A::kPerItem;
    const int64_t items = length / A::kPerItem;
    for (int64_t done = 0; done < items;
         done += kItems, at += kItems * A::kPerItem * b_stride, x_row += kItems * A::kXRows * rows) {
      const int64_t some = std::min<int64_t>(kItems, items - done);
      int64_t row = 0;
      for (; row + kLargest <= rows; row += kLargest) add_rows<kLargest, kItems>(at, x_row, some, row, sums);
      if constexpr (kLargest == 3) {  // the others divide their numbers of rows
        if (row + 2 == rows) add_rows<2, kItems>(at, x_row, some, row, sums);
        if (row + 1 == rows) add_rows<1, kItems>(at, x_row, some, row, sums);
      }
    }
  }
  // The k that is left of an odd leaf.
  void add_alone(const S* at, const T* x_row, T* sums) const {
    for (int64_t r = 0; r < rows; ++r, sums += width)
      for_registers([](int64_t) {},
                    [&](int64_t j, auto load) {
                      Block::store(sums + j, A::add_alone(load(at + j), Block::splat(x_row[r]), Block::load(sums + j)));
                    });
  }

  // The chains of a leaf: of `length` rows of B from `at` on.
  TUTTI_OPAQUE_CALL void leaf(const S* at, const T* x_row, int64_t length, T* sums) const {
    std::fill(sums, sums + rows * width, T{-0.0});
    switch (rows) {
      case 1:
        leaf<1>(at, x_row, length, sums);
        break;
      case 2:
        leaf<2>(at, x_row, length, sums);
        break;
      case 4:
        leaf<4>(at, x_row, length, sums);
        break;
      default:
        leaf<3>(at, x_row, length, sums);
    }
    if constexpr (A::kPerItem == 2) {
      if (length % 2 != 0) add_alone(at + (length - 1) * b_stride, x_row + length / 2 * A::kXRows * rows, sums);
    }
  }

  // The whole tree: `sums` has room for depth + 1 times [rows][width]; the result is the first.
  void run(const ContractionTree& tree, T* sums) const {
    const int64_t size = rows * width;
    const S* at = b;
    const T* x_row = x;
    for (size_t l = 0; l < tree.leaf_lengths.size(); ++l, sums += size) {
      const int64_t length = tree.leaf_lengths[l];
      {
        [[maybe_unused]] const typename A::Mode mode;
        leaf(at, x_row, length, sums);
      }
      at += length * b_stride;
      x_row += items_of(A::kKind, length) * rows;
      for (int merges = tree.merges[l]; merges > 0; --merges) {
        sums -= size;
        for (int64_t i = 0; i < size; i += Block::kSide)
          Block::store(sums + i, Block::add(Block::load(sums + i), Block::load(sums + size + i)));
      }
    }
  }
};

}  // namespace tutti::codegen::stream
