// Products of decoded numbers: chains of fused multiply-adds in the tree of a contraction (numerics contract, N3).
//
// A panel is kValueColumns columns of the right operand, decoded for all k: f32 [k][columns]. Private to the products
// of codes.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "tutti/codegen/codes/few_rows.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/simd.h"
#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::codes {

inline constexpr int64_t kValueColumns = 16;
inline constexpr int64_t kValueRows = 4;  // of a tile

// The chains of a leaf, [begin, end) of k, for kRows rows of x. Nothing takes their address, so that they stay in
// registers.
template <int kRows>
[[gnu::always_inline]] inline void chains_of(const float* x, int64_t stride, const float* panel, int64_t begin,
                                             int64_t end, __m256 (&result)[kRows][2]) {
  __m256 chains[kRows][2];
  for (int i = 0; i < kRows; ++i) chains[i][0] = chains[i][1] = _mm256_set1_ps(-0.0F);
  for (int64_t p = begin; p < end; ++p) {
    const __m256 left = _mm256_loadu_ps(panel + p * kValueColumns),
                 right = _mm256_loadu_ps(panel + p * kValueColumns + 8);
    for (int i = 0; i < kRows; ++i) {
      const __m256 of_row = _mm256_broadcast_ss(x + i * stride + p);
      chains[i][0] = _mm256_fmadd_ps(of_row, left, chains[i][0]);
      chains[i][1] = _mm256_fmadd_ps(of_row, right, chains[i][1]);
      simd::finish_before(x, chains[i][0], chains[i][1]);
    }
  }
  for (int i = 0; i < kRows; ++i) result[i][0] = chains[i][0], result[i][1] = chains[i][1];
}

// to[row][column]: the totals of kRows rows, in registers that hold all columns.
template <int kRows>
[[TUTTI_WIDE]] void multiply_wide_values_tile(const float* x, int64_t stride, const float* panel,
                                              const ContractionTree& tree, float (&to)[kRows][kValueColumns]) {
  __m512 pending[kMostPending][kRows], sums[kRows];
  for (int i = 0; i < kRows; ++i) sums[i] = _mm512_set1_ps(-0.0F);
  int64_t top = 0, p = 0;
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    for (int i = 0; i < kRows; ++i) sums[i] = _mm512_set1_ps(-0.0F);
    for (const int64_t end = p + tree.leaf_lengths[leaf]; p < end; ++p) {
      const __m512 of_columns = _mm512_loadu_ps(panel + p * kValueColumns);
      for (int i = 0; i < kRows; ++i) sums[i] = _mm512_fmadd_ps(_mm512_set1_ps(x[i * stride + p]), of_columns, sums[i]);
    }
    for (int32_t merges = tree.merges[leaf]; merges > 0; --merges) {
      --top;
      for (int i = 0; i < kRows; ++i) sums[i] = _mm512_add_ps(pending[top][i], sums[i]);
    }
    for (int i = 0; i < kRows; ++i) pending[top][i] = sums[i];
    ++top;
  }
  for (int i = 0; i < kRows; ++i) _mm512_storeu_ps(to[i], sums[i]);
}

// multiply_values() with registers of 512 bits, of which more rows find room.
template <int kRows = 12, class Finish>
void multiply_wide_values(const float* x, int64_t stride, int64_t count, const float* panel,
                          const ContractionTree& tree, Finish finish) {
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) {
    alignas(64) float totals[kRows][kValueColumns];
    multiply_wide_values_tile<kRows>(x + row * stride, stride, panel, tree, totals);
    for (int i = 0; i < kRows; ++i) finish(row + i, _mm256_load_ps(totals[i]), _mm256_load_ps(totals[i] + 8));
  }
  if constexpr (kRows > 1) {
    constexpr int kFewer = kRows > 4 ? 4 : kRows - 1;
    if (row < count)
      multiply_wide_values<kFewer>(x + row * stride, stride, count - row, panel, tree,
                                   [&](int64_t r, __m256 left, __m256 right) { finish(row + r, left, right); });
  }
}

// Calls finish(row, values of its first eight columns, of the others) for each row of x [count, k], `stride` numbers
// apart.
template <int kRows = kValueRows, class Finish>
void multiply_values(const float* x, int64_t stride, int64_t count, const float* panel, const ContractionTree& tree,
                     Finish finish) {
  if (kRows == kValueRows && has_wide_registers(cpu_target()))
    return multiply_wide_values(x, stride, count, panel, tree, finish);
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) {
    __m256 pending[kMostPending][kRows][2], sums[kRows][2];
    int64_t top = 0, p = 0;
    if (tree.leaf_lengths.empty()) chains_of<kRows>(x, stride, panel, 0, 0, sums);
    for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
      chains_of<kRows>(x + row * stride, stride, panel, p, p + tree.leaf_lengths[leaf], sums);
      p += tree.leaf_lengths[leaf];
      for (int32_t merges = tree.merges[leaf]; merges > 0; --merges) {
        --top;
        for (int i = 0; i < kRows; ++i)
          for (int h = 0; h < 2; ++h) sums[i][h] = _mm256_add_ps(pending[top][i][h], sums[i][h]);
      }
      for (int i = 0; i < kRows; ++i)
        for (int h = 0; h < 2; ++h) pending[top][i][h] = sums[i][h];
      ++top;
    }
    for (int i = 0; i < kRows; ++i) finish(row + i, sums[i][0], sums[i][1]);
  }
  if constexpr (kRows > 1) {
    if (row < count)
      multiply_values<kRows - 1>(x + row * stride, stride, count - row, panel, tree,
                                 [&](int64_t r, __m256 left, __m256 right) { finish(row + r, left, right); });
  }
}

}  // namespace tutti::codegen::codes
