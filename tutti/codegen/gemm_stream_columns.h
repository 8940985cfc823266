// x B for B with neighbouring columns, a block of columns at a time. Private to gemm_stream.cpp.
#pragma once

#include <algorithm>

#include "tutti/codegen/contraction_tree.h"
#include "tutti/codegen/gemm_simd.h"

namespace tutti::codegen::stream {

// Rows of x whose sums are registers at a time, and as many k as leave registers for their elements: three by three is the
// most work for a sum that is loaded and stored.
constexpr int k_at_once(int rows) { return rows == 1 ? 8 : rows == 2 ? 4 : rows == 3 ? 3 : 2; }
// Rows of B that are asked for ahead. One row of x alone reads so many streams that the processor follows by itself.
inline constexpr int64_t kRowsAhead = 8;

template <class T, class S>
struct ColumnBlock {
  const T* x;  // [k][rows]
  int64_t rows;
  const S* b;
  int64_t b_stride;
  int64_t columns;
  int64_t width;  // columns in whole registers

  using Block = simd::Block<T>;

  // sums[r][j] += kK terms, for the kRows rows from `row` on.
  template <int kRows, int kK>
  void add(int64_t k, int64_t row, T* sums) const {
    typename Block::Vector factor[kRows][kK];
    for (int r = 0; r < kRows; ++r)
      for (int i = 0; i < kK; ++i) factor[r][i] = Block::splat(x[(k + i) * rows + row + r]);
    const S* at = b + k * b_stride;
    T* const sums_of_row = sums + row * width;
    const auto step = [&](int64_t j, auto load) {
      typename Block::Vector sum[kRows];
      for (int r = 0; r < kRows; ++r) sum[r] = Block::load(sums_of_row + r * width + j);
      for (int i = 0; i < kK; ++i) {
        const typename Block::Vector elements = load(at + i * b_stride + j);
        for (int r = 0; r < kRows; ++r) sum[r] = Block::fma(factor[r][i], elements, sum[r]);
      }
      for (int r = 0; r < kRows; ++r) Block::store(sums_of_row + r * width + j, sum[r]);
    };
    const auto load_all = [](const S* p) { return Block::load(p); };
    constexpr int64_t kLine = 64 / static_cast<int64_t>(sizeof(S));
    int64_t j = 0;
    for (; j + kLine <= columns; j += kLine) {
      if (kRows > 1 && row == 0) {
        for (int i = 0; i < kK; ++i) _mm_prefetch(reinterpret_cast<const char*>(at + (i + kRowsAhead) * b_stride + j), _MM_HINT_T0);
      }
      for (int64_t part = 0; part < kLine; part += Block::kSide) step(j + part, load_all);
    }
    for (; j + Block::kSide <= columns; j += Block::kSide) step(j, load_all);
    if (j < columns) step(j, [&](const S* p) { return simd::load_part<T>(p, columns - j); });
  }

  // kK or fewer k.
  template <int kRows, int kK>
  void add_rows(int64_t k, int64_t length, int64_t row, T* sums) const {
    if (length == kK) return add<kRows, kK>(k, row, sums);
    for (int64_t i = 0; i < length; ++i) add<kRows, 1>(k + i, row, sums);
  }
  template <int kLargest>
  void leaf(int64_t k, int64_t length, T* sums) const {
    constexpr int kK = k_at_once(kLargest);
    for (int64_t done = 0; done < length; done += kK) {
      const int64_t some = std::min<int64_t>(kK, length - done);
      int64_t row = 0;
      for (; row + kLargest <= rows; row += kLargest) add_rows<kLargest, kK>(k + done, some, row, sums);
      if constexpr (kLargest == 3) {  // the others divide their numbers of rows
        if (row + 2 == rows) add_rows<2, kK>(k + done, some, row, sums);
        if (row + 1 == rows) add_rows<1, kK>(k + done, some, row, sums);
      }
    }
  }

  // The chains of the leaf [k, k + length).
  void leaf(int64_t k, int64_t length, T* sums) const {
    std::fill(sums, sums + rows * width, T{-0.0});
    switch (rows) {
      case 1: return leaf<1>(k, length, sums);
      case 2: return leaf<2>(k, length, sums);
      case 4: return leaf<4>(k, length, sums);
      default: return leaf<3>(k, length, sums);
    }
  }

  // The whole tree: `sums` has room for depth + 1 times [rows][width]; the result is the first.
  void run(const ContractionTree& tree, T* sums) const {
    const int64_t size = rows * width;
    int64_t k = 0;
    for (size_t l = 0; l < tree.leaf_lengths.size(); ++l, sums += size) {
      leaf(k, tree.leaf_lengths[l], sums);
      k += tree.leaf_lengths[l];
      for (int merges = tree.merges[l]; merges > 0; --merges) {
        sums -= size;
        for (int64_t i = 0; i < size; i += Block::kSide) Block::store(sums + i, Block::add(Block::load(sums + i), Block::load(sums + size + i)));
      }
    }
  }
};

}  // namespace tutti::codegen::stream
