// Tiles of small products of floats in registers of 512 bits: eight rows of factors times 16 * kVectors columns, each
// sum a chain of fmas over a leaf. Called only where has_wide_registers(cpu_target()).
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/wide.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::facets {

inline constexpr int64_t kWideTileRows = 8;

// Eight rows of factors, of which row r has none at k = left_out + r; -1: all have.
struct WideFactors {
  const float* rows[kWideTileRows];
  int64_t left_out;
};

template <int kVectors>
struct WideTile {
  [[gnu::always_inline, TUTTI_WIDE]] WideTile() {
#pragma GCC unroll 8
    for (int r = 0; r < kWideTileRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) total[r][v] = _mm512_set1_ps(static_cast<float>(kSumIdentity));
  }
  // Adds what the factors k take of a row, but for the factor of row `without`.
  [[gnu::always_inline, TUTTI_WIDE]] void add(const WideFactors& factors, int64_t k, const float* row,
                                              int64_t without) {
    __m512 x[kVectors];
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) x[v] = _mm512_loadu_ps(row + 16 * v);
#pragma GCC unroll 8
    for (int r = 0; r < kWideTileRows; ++r) {
      if (r == without) continue;
      const __m512 by = _mm512_set1_ps(factors.rows[r][k]);
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) total[r][v] = _mm512_fmadd_ps(by, x[v], total[r][v]);
    }
  }
  [[gnu::always_inline, TUTTI_WIDE]] void store(float* out) const {
#pragma GCC unroll 8
    for (int r = 0; r < kWideTileRows; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(out + 16 * (kVectors * r + v), total[r][v]);
  }

  __m512 total[kWideTileRows][kVectors];
};

// Writes to sums[r][w], rows of 16 * kVectors, the sum of factors.rows[r][k] * rows[k * stride + w] over [begin, end):
// chains of a leaf, halved.
template <int kVectors>
[[TUTTI_WIDE]] void add_wide_tile(int64_t begin, int64_t end, const WideFactors& factors, const float* rows,
                                  int64_t stride, float* sums) {
  if (const int64_t n = end - begin; n > codegen::contraction_leaf()) {
    const int64_t middle = begin + (n + 1) / 2;
    float second[kWideTileRows * 16 * kVectors];
    add_wide_tile<kVectors>(begin, middle, factors, rows, stride, sums);
    add_wide_tile<kVectors>(middle, end, factors, rows, stride, second);
    for (int64_t i = 0; i < std::ssize(second); ++i) sums[i] += second[i];
    return;
  }
  WideTile<kVectors> tile;
  const int64_t some = factors.left_out < 0 ? end : std::clamp(factors.left_out, begin, end),
                all_again = factors.left_out < 0 ? end : std::clamp(factors.left_out + kWideTileRows, begin, end);
  for (int64_t k = begin; k < some; ++k) tile.add(factors, k, rows + k * stride, -1);
  for (int64_t k = some; k < all_again; ++k) tile.add(factors, k, rows + k * stride, k - factors.left_out);
  for (int64_t k = all_again; k < end; ++k) tile.add(factors, k, rows + k * stride, -1);
  tile.store(sums);
}

// columns[d * stride + i] = rows[i * D + d] for F rows; of the rest of the columns, up to a multiple of 16, nothing is
// said. `columns` has D rows of `stride`, a multiple of 16.
[[TUTTI_WIDE]] inline void write_columns(const float* rows, int64_t F, int64_t D, float* columns, int64_t stride) {
  for (int64_t i = 0; i < F; i += 16) {
    for (int64_t d = 0; d < D; d += 16) {
      const int64_t width = std::min<int64_t>(D - d, 16);
      const __mmask16 lanes = static_cast<__mmask16>(0xffff >> (16 - width));
      __m512i words[16];
      for (int64_t r = 0; r < 16; ++r)
        words[r] = _mm512_maskz_loadu_epi32(i + r < F ? lanes : __mmask16{0}, rows + std::min(i + r, F - 1) * D + d);
      codegen::simd::transpose_words(words);
      for (int64_t w = 0; w < width; ++w) _mm512_storeu_si512(columns + (d + w) * stride + i, words[w]);
    }
  }
}

}  // namespace tutti::facets
