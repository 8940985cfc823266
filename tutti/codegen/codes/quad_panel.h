// Products of 8-bit integers on dot units (VPDPBUSD): rows of bytes that are too large by an offset, times panels of
// kQuadColumns columns of i8 [quads of k][columns][4]. What offsets add to the exact sums is taken off by a number for
// each row and one for each column. Private to attention over codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::codes {

inline constexpr int64_t kQuadColumns = 16;
inline int64_t padded_quads(int64_t k) { return (k + 3) / 4 * 4; }

// The sum of `count` bytes, of which those up to a multiple of 64 are 0.
[[TUTTI_DOTS]] inline int32_t sum_of_bytes(const uint8_t* bytes, int64_t count) {
  __m512i sums = _mm512_setzero_si512();
  for (int64_t p = 0; p < count; p += 64)
    sums = _mm512_dpbusd_epi32(sums, _mm512_loadu_si512(bytes + p), _mm512_set1_epi8(1));
  return _mm512_reduce_add_epi32(sums);
}

// Writes `factor` times the sum of each column behind a panel, from where the products read it.
[[TUTTI_DOTS]] inline void put_column_sums(uint8_t* panel, int64_t k, int32_t factor) {
  __m512i sums = _mm512_setzero_si512();
  const int64_t size = padded_quads(k) * kQuadColumns;
  for (int64_t at = 0; at < size; at += 64)
    sums = _mm512_dpbusd_epi32(sums, _mm512_set1_epi8(1), _mm512_loadu_si512(panel + at));
  _mm512_storeu_si512(panel + size, _mm512_mullo_epi32(sums, _mm512_set1_epi32(factor)));
}

// A panel of columns that are rows of k bytes, `stride` bytes apart, whose bits `flip` change; 0 where there are none.
[[TUTTI_DOTS]] inline void pack_quad_rows(const uint8_t* first, int64_t stride, int64_t columns, int64_t k,
                                          uint8_t flip, uint8_t* panel) {
  const __m512i bits = _mm512_set1_epi8(static_cast<char>(flip));
  for (int64_t p = 0; p < k; p += 64) {
    const __mmask64 is_there = k - p >= 64 ? ~__mmask64{0} : (__mmask64{1} << (k - p)) - 1;
    __m512i r[kQuadColumns];
    for (int64_t j = 0; j < kQuadColumns; ++j) {
      const __mmask64 mask = j < columns ? is_there : 0;
      r[j] = _mm512_maskz_loadu_epi8(mask, first + std::min(j, columns - 1) * stride + p);
      r[j] = _mm512_maskz_mov_epi8(mask, _mm512_xor_si512(r[j], bits));
    }
    simd::transpose_words(r);
    const int64_t quads = std::min<int64_t>(16, (k - p + 3) / 4);
    for (int64_t w = 0; w < quads; ++w) _mm512_storeu_si512(panel + (p / 4 + w) * 64, r[w]);
  }
}

// The same where k runs over rows of bytes, whose neighbours are the columns.
[[TUTTI_DOTS]] inline void pack_quad_columns(const uint8_t* first, int64_t stride, int64_t columns, int64_t k,
                                             uint8_t flip, uint8_t* panel) {
  const auto is_there = static_cast<__mmask16>((1 << columns) - 1);
  const __m128i bits = _mm_set1_epi8(static_cast<char>(flip));
  for (int64_t p = 0; p < k; p += 4) {
    __m128i r[4];
    for (int64_t i = 0; i < 4; ++i) {
      const auto mask = static_cast<__mmask16>(p + i < k ? is_there : 0);
      r[i] = _mm_maskz_loadu_epi8(mask, first + std::min(p + i, k - 1) * stride);
      r[i] = _mm_maskz_mov_epi8(mask, _mm_xor_si128(r[i], bits));
    }
    const __m128i a = _mm_unpacklo_epi8(r[0], r[1]), b = _mm_unpackhi_epi8(r[0], r[1]);
    const __m128i c = _mm_unpacklo_epi8(r[2], r[3]), d = _mm_unpackhi_epi8(r[2], r[3]);
    auto* const to = reinterpret_cast<__m128i*>(panel + p * kQuadColumns);
    _mm_storeu_si128(to, _mm_unpacklo_epi16(a, c)), _mm_storeu_si128(to + 1, _mm_unpackhi_epi16(a, c));
    _mm_storeu_si128(to + 2, _mm_unpacklo_epi16(b, d)), _mm_storeu_si128(to + 3, _mm_unpackhi_epi16(b, d));
  }
}

// to[row][column] of kRows rows, as f32. `of_columns` may be null, for zeros.
template <int kRows>
[[TUTTI_DOTS]] void multiply_quads_tile(const uint8_t* rows, int64_t stride, const int32_t* of_rows,
                                        const uint8_t* panel, const uint8_t* of_columns, int64_t quads,
                                        float (&to)[kRows][kQuadColumns]) {
  __m512i sums[kRows];
  const __m512i less = of_columns == nullptr ? _mm512_setzero_si512() : _mm512_loadu_si512(of_columns);
  for (int i = 0; i < kRows; ++i) sums[i] = _mm512_sub_epi32(_mm512_set1_epi32(of_rows[i]), less);
  for (int64_t p = 0; p < quads; ++p) {
    const __m512i codes = _mm512_loadu_si512(panel + p * 64);
    for (int i = 0; i < kRows; ++i) {
      int32_t quad;
      std::memcpy(&quad, rows + i * stride + 4 * p, sizeof(quad));
      sums[i] = _mm512_dpbusd_epi32(sums[i], _mm512_set1_epi32(quad), codes);
    }
  }
  for (int i = 0; i < kRows; ++i) _mm512_storeu_ps(to[i], _mm512_cvtepi32_ps(sums[i]));
}

// Calls finish(row, totals of its first eight columns, of the others) for each of the rows, `stride` bytes apart.
template <int kRows = 12, class Finish>
void multiply_quads(const uint8_t* rows, int64_t stride, const int32_t* of_rows, int64_t count, const uint8_t* panel,
                    const uint8_t* of_columns, int64_t quads, Finish finish) {
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) {
    alignas(64) float totals[kRows][kQuadColumns];
    multiply_quads_tile<kRows>(rows + row * stride, stride, of_rows + row, panel, of_columns, quads, totals);
    for (int i = 0; i < kRows; ++i) finish(row + i, _mm256_load_ps(totals[i]), _mm256_load_ps(totals[i] + 8));
  }
  if constexpr (kRows > 1) {
    constexpr int kFewer = kRows > 4 ? 4 : kRows - 1;
    if (row < count)
      multiply_quads<kFewer>(rows + row * stride, stride, of_rows + row, count - row, panel, of_columns, quads,
                             [&](int64_t r, __m256 left, __m256 right) { finish(row + r, left, right); });
  }
}

}  // namespace tutti::codegen::codes
