// Products of up to four rows of numbers with codes that are decoded as they are read, in the order of memory; what
// decode_lines.h and gemm() do for many rows. Chains and tree are those of numerics contract N3. Private to the
// products of codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/gemm/contraction_tree.h"

namespace tutti::codegen::codes {

inline constexpr int64_t kFewRows = 4;
inline constexpr int32_t kMostPending = 48;
// Registers of eight columns that a pass takes together: enough chains for the latency of a multiply-add, and few
// enough that they stay in registers.
constexpr int vectors_of(int rows) { return rows <= 2 ? 4 : 2; }
inline int64_t few_columns(int64_t rows) { return 8 * vectors_of(static_cast<int>(rows)); }
inline constexpr int64_t kMostFewColumns = 8 * vectors_of(1);

// Adds x * code to the chains for the codes [begin, end) of k, all of them in this line.
template <bool kSpecial, int kX, int kVectors, class Lanes>
[[gnu::always_inline]] inline void add_codes(const Lanes& lanes, const __m256i (&words)[kLineWords][kVectors],
                                             int64_t first_word, int64_t begin, int64_t end, const float* x,
                                             int64_t stride, __m256 (&chains)[kX][kVectors]) {
  for (int64_t p = begin; p < end;) {
    const int64_t word = p / Lanes::kPerWord, next = std::min(end, (word + 1) * Lanes::kPerWord);
    const int64_t place = lanes.place(word);
    const auto& of_rows = words[word - first_word];
    const auto add = [&](int i) __attribute__((always_inline)) {
      __m256 of_x[kX];
      for (int r = 0; r < kX; ++r) of_x[r] = _mm256_broadcast_ss(x + r * stride + word * Lanes::kPerWord + i);
      for (int v = 0; v < kVectors; ++v) {
        const __m256 w = lanes.template numbers<kSpecial>(of_rows[v], i, place, v);
        for (int r = 0; r < kX; ++r) chains[r][v] = _mm256_fmadd_ps(of_x[r], w, chains[r][v]);
      }
    };
    if (next - p == Lanes::kPerWord) {
#pragma GCC unroll 8
      for (int i = 0; i < static_cast<int>(Lanes::kPerWord); ++i) add(i);
      p = next;
    } else {
      for (; p < next; ++p) add(static_cast<int>(p % Lanes::kPerWord));
    }
  }
}

// sums[r][v]: the totals of row r of x, `stride` numbers apart, with columns 8v to 8v + 7.
template <int kX, int kVectors, class Lanes>
void multiply_lines(const CodeColumns& c, const Lanes& lanes, const float* x, int64_t stride,
                    const ContractionTree& tree, __m256 (&sums)[kX][kVectors]) {
  constexpr int64_t kLineCodes = kLineWords * Lanes::kPerWord;
  __m256i words[kLineWords][kVectors];
  __m256 pending[kMostPending][kX][kVectors];
  int64_t top = 0, p = 0, line = -1;
  bool is_special = false;
  for (auto& of_row : sums)
    for (__m256& s : of_row) s = _mm256_set1_ps(-0.0F);
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    __m256 chains[kX][kVectors];
    for (auto& of_row : chains)
      for (__m256& chain : of_row) chain = _mm256_set1_ps(-0.0F);
    for (const int64_t end_of_leaf = p + tree.leaf_lengths[leaf]; p < end_of_leaf;) {
      if (p / kLineCodes != line) {
        line = p / kLineCodes;
        load_line(c, line, words);
        is_special = lanes.may_be_special(words);
      }
      const int64_t end = std::min(end_of_leaf, (line + 1) * kLineCodes);
      if (is_special) add_codes<true>(lanes, words, line * kLineWords, p, end, x, stride, chains);
      else add_codes<false>(lanes, words, line * kLineWords, p, end, x, stride, chains);
      p = end;
    }
    for (int i = 0; i < kX; ++i)
      for (int v = 0; v < kVectors; ++v) sums[i][v] = chains[i][v];
    for (int32_t merges = tree.merges[leaf]; merges > 0; --merges) {
      --top;
      for (int i = 0; i < kX; ++i)
        for (int v = 0; v < kVectors; ++v) sums[i][v] = _mm256_add_ps(pending[top][i][v], sums[i][v]);
    }
    for (int i = 0; i < kX; ++i)
      for (int v = 0; v < kVectors; ++v) pending[top][i][v] = sums[i][v];
    ++top;
  }
}

// Calls finish(row, vector, totals of its eight columns) for each of `rows` <= kFewRows rows of x and few_columns(rows)
// columns.
template <int kX = kFewRows, class Lanes, class Finish>
void multiply_few(const CodeColumns& c, const Lanes& lanes, const float* x, int64_t stride, int64_t rows,
                  const ContractionTree& tree, Finish finish) {
  if constexpr (kX > 1) {
    if (rows < kX) return multiply_few<kX - 1>(c, lanes, x, stride, rows, tree, finish);
  }
  constexpr int kVectors = vectors_of(kX);
  __m256 sums[kX][kVectors];
  multiply_lines(c, lanes, x, stride, tree, sums);
  for (int r = 0; r < kX; ++r)
    for (int v = 0; v < kVectors; ++v) finish(r, v, sums[r][v]);
}

}  // namespace tutti::codegen::codes
