// Dot products of eight rows of blocks with few rows of x, as in block_rows.h, 64 codes of a row at once. Private to
// wide_panels.cpp.
#pragma once

#include "tutti/codegen/blocks/wide_codes.h"

namespace tutti::codegen::blocks {

// In each quarter: the sums of lanes 0 and 2 of a and of b, then those of lanes 1 and 3.
TUTTI_DOTS_INLINE __m512i sums_of_pairs(__m512i a, __m512i b) {
  return _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
}
// Lane r of each quarter of the result is the sum of that quarter of rows[r].
TUTTI_DOTS_INLINE __m512i sums_of_quarters(const __m512i (&rows)[4]) {
  const __m512i a = sums_of_pairs(rows[0], rows[1]), b = sums_of_pairs(rows[2], rows[3]);
  return _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
}
// The same where all lanes, and sums of two of them, fit 16 bits.
TUTTI_DOTS_INLINE __m512i narrow_sums_of_quarters(const __m512i (&rows)[4]) {
  const __m512i ones = _mm512_set1_epi16(1);
  const __m512i a = _mm512_madd_epi16(_mm512_packs_epi32(rows[0], rows[1]), ones);
  const __m512i b = _mm512_madd_epi16(_mm512_packs_epi32(rows[2], rows[3]), ones);
  return _mm512_madd_epi16(_mm512_packs_epi32(a, b), ones);
}

TUTTI_DOTS_INLINE __m512 two_numbers(float low, float high) {
  return _mm512_mask_mov_ps(_mm512_set1_ps(low), 0xff00, _mm512_set1_ps(high));
}
TUTTI_DOTS_INLINE __m256 low_half(__m512 v) { return _mm512_castps512_ps256(v); }
TUTTI_DOTS_INLINE __m256 high_half(__m512 v) { return _mm512_extractf32x8_ps(v, 1); }

// Adds blocks `index` and `index` + 1 of a leaf.
template <class F, int kX>
TUTTI_DOTS_INLINE void add_two_small_blocks(const RowsOfW& b, int64_t index, const RowsOfX (&x)[kX],
                                            __m256 (&chains)[kX]) {
  using Wide = WideSmall<F>;
  __m512i of_x[kX], without_offset[kX], quads[2][kX];
  for (int i = 0; i < kX; ++i) {
    of_x[i] = load64(x[i].codes + kSmallBlock * index);
    without_offset[i] = _mm512_setzero_si512();
    if constexpr (Wide::kOffset != 0) {
      const __m512i offsets = _mm512_set1_epi8(static_cast<char>(Wide::kOffset));
      without_offset[i] =
          _mm512_sub_epi32(without_offset[i], _mm512_dpbusd_epi32(_mm512_setzero_si512(), offsets, of_x[i]));
    }
  }
#pragma GCC unroll 1
  for (int half = 0; half < 2; ++half) {
    __m512i sums[kX][4];
    for (int r = 0; r < 4; ++r) {
      const Byte* row = b[4 * half + r];
      const __m512i codes = Wide::codes(row, row + F::kBytes);
      for (int i = 0; i < kX; ++i) sums[i][r] = _mm512_dpbusd_epi32(without_offset[i], codes, of_x[i]);
    }
    constexpr bool kFits = 2 * 4 * 127 * Wide::kLargest < 32768;
    for (int i = 0; i < kX; ++i) {
      if constexpr (kFits) quads[half][i] = narrow_sums_of_quarters(sums[i]);
      else quads[half][i] = sums_of_quarters(sums[i]);
    }
  }
  const __m512 d = pair_halves_at<F>(b, 0);
  [[maybe_unused]] __m512 m;
  if constexpr (F::kHasMinimum) m = pair_halves_at<F>(b, 2);
  for (int i = 0; i < kX; ++i) {
    const __m512i low_quarters = _mm512_setr_epi64(0, 1, 8, 9, 4, 5, 12, 13);
    const __m512i high_quarters = _mm512_setr_epi64(2, 3, 10, 11, 6, 7, 14, 15);
    const __m512 products =
        _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_permutex2var_epi64(quads[0][i], low_quarters, quads[1][i]),
                                            _mm512_permutex2var_epi64(quads[0][i], high_quarters, quads[1][i])));
    const __m512 e = two_numbers(x[i].scales[index], x[i].scales[index + 1]), factors = _mm512_mul_ps(d, e);
    __m256 chain = _mm256_fmadd_ps(low_half(factors), low_half(products), chains[i]);
    if constexpr (F::kHasMinimum) {
      const int16_t* codes = x[i].sums + 2 * index;
      const __m512 of_minima = _mm512_mul_ps(m, e);
      chain = _mm256_fmadd_ps(low_half(of_minima), _mm256_set1_ps(static_cast<float>(codes[0] + codes[1])), chain);
      chain = _mm256_fmadd_ps(high_half(factors), high_half(products), chain);
      chain = _mm256_fmadd_ps(high_half(of_minima), _mm256_set1_ps(static_cast<float>(codes[2] + codes[3])), chain);
    } else {
      chain = _mm256_fmadd_ps(high_half(factors), high_half(products), chain);
    }
    chains[i] = chain;
  }
}

// What is not codes in the super-blocks of eight rows.
template <class F>
class WideHeads {
 public:
  TUTTI_DOTS_INLINE explicit WideHeads(const RowsOfW& b)
      : low_(four_rows(b[0], b[1], b[2], b[3])), high_(four_rows(b[4], b[5], b[6], b[7])) {
    const __m512i low = scales_and_minima(low_), high = scales_and_minima(high_);
    _mm512_store_si512(bytes_[0], low);
    _mm512_store_si512(bytes_[4], high);
    low_minima_ = _mm512_unpackhi_epi8(low, _mm512_setzero_si512());
    high_minima_ = _mm512_unpackhi_epi8(high, _mm512_setzero_si512());
    halves_ = _mm512_castsi512_si256(
        _mm512_permutex2var_epi32(low_, _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 0, 0, 0, 0, 0, 0, 0), high_));
  }
  TUTTI_DOTS_INLINE __m256 d() const { return _mm256_cvtph_ps(_mm256_cvtepi32_epi16(halves_)); }
  TUTTI_DOTS_INLINE __m256 m() const { return _mm256_cvtph_ps(_mm256_cvtepi32_epi16(_mm256_srli_epi32(halves_, 16))); }
  // The scales of row r, of which factors() makes a word for each pair of codes of a quarter.
  TUTTI_DOTS_INLINE __m512i row_factors(int r) const { return twice16(bytes_[r]); }
  TUTTI_DOTS_INLINE static __m512i factors(__m512i of_row, int quarter) {
    const int first = WideSuper<F>::first_of(quarter);
    return _mm512_shuffle_epi8(
        of_row, joined(_mm256_set1_epi16(static_cast<int16_t>(0x8000 | first)),
                       _mm256_set1_epi16(static_cast<int16_t>(0x8000 | (first + WideSuper<F>::kBetween)))));
  }
  // Minima times the sums of x, one lane for each row.
  TUTTI_DOTS_INLINE __m256i minima(const int16_t* sums) const {
    const __m256i of_32 = _mm256_madd_epi16(_mm256_loadu_si256(at(sums)), _mm256_set1_epi16(1));
    const __m512i of_x = _mm512_broadcast_i32x4(_mm256_cvtepi32_epi16(of_32));
    const __m512i low = _mm512_madd_epi16(low_minima_, of_x), high = _mm512_madd_epi16(high_minima_, of_x);
    const __m512i pairs = sums_of_pairs(low, high);
    const __m512i all = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_BADC));
    return _mm512_castsi512_si256(
        _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 0, 0, 0, 0, 0, 0, 0, 0), all));
  }

 private:
  alignas(64) Byte bytes_[kPanelRows][16];
  __m512i low_, high_, low_minima_, high_minima_;
  __m256i halves_;
};

// The minimum of a sub-block of Q6_K is 32 times its scale, so that its sum can be taken away before lanes are added.
template <>
class WideHeads<Q6_K> {
 public:
  TUTTI_DOTS_INLINE explicit WideHeads(const RowsOfW& b) : b_(b) {}
  TUTTI_DOTS_INLINE __m256 d() const { return halves_at(b_, Q6_K::scale(b_[0]) - b_[0]); }
  TUTTI_DOTS_INLINE __m512i row_factors(int r) const {
    return _mm512_castsi256_si512(_mm256_cvtepi8_epi16(load16(b_[r] + 192)));
  }
  TUTTI_DOTS_INLINE static __m512i factors(__m512i of_row, int quarter) {
    constexpr int64_t kWords = 0x0001000100010001;
    const int64_t a = 4 * quarter * kWords, b = a + kWords, c = b + kWords, d = c + kWords;
    return _mm512_permutexvar_epi16(_mm512_setr_epi64(a, a, b, b, c, c, d, d), of_row);
  }

 private:
  const RowsOfW& b_;
};

template <class F, int kX>
TUTTI_DOTS_INLINE void add_wide_super_block(const RowsOfW& b, int64_t index, const RowsOfX (&x)[kX],
                                            __m256 (&chains)[kX]) {
  constexpr int kQuarters = kSuperBlock / 64;
  using Wide = WideSuper<F>;
  const WideHeads<F> heads(b);
  __m512i of_x[kX][kQuarters], quads[2][kX];
  [[maybe_unused]] __m256i below[kX];
  for (int i = 0; i < kX; ++i) {
    for (int q = 0; q < kQuarters; ++q) {
      const int8_t* codes = x[i].codes + kSuperBlock * index + kChunk * Wide::first_of(q);
      of_x[i][q] = joined(_mm256_loadu_si256(at(codes)), _mm256_loadu_si256(at(codes + kChunk * Wide::kBetween)));
    }
    if constexpr (!F::kHasMinimum)
      below[i] = _mm256_sub_epi16(_mm256_setzero_si256(), _mm256_loadu_si256(at(x[i].sums + 16 * index)));
  }
#pragma GCC unroll 1
  for (int half = 0; half < 2; ++half) {
    __m512i sums[kX][4];
    for (int r = 0; r < 4; ++r) {
      const Byte* row = b[4 * half + r];
      const __m512i of_row = heads.row_factors(4 * half + r);
      for (int i = 0; i < kX; ++i) {
        sums[i][r] = _mm512_setzero_si512();
        if constexpr (!F::kHasMinimum)
          sums[i][r] =
              _mm512_zextsi256_si512(_mm256_madd_epi16(_mm256_slli_epi16(_mm512_castsi512_si256(of_row), 5), below[i]));
      }
      for (int q = 0; q < kQuarters; ++q) {
        const __m512i codes = Wide::codes(row, q), factors = heads.factors(of_row, q);
        for (int i = 0; i < kX; ++i)
          sums[i][r] = _mm512_dpwssd_epi32(sums[i][r], _mm512_maddubs_epi16(codes, of_x[i][q]), factors);
      }
    }
    for (int i = 0; i < kX; ++i) quads[half][i] = sums_of_quarters(sums[i]);
  }
  const __m256 d = heads.d();
  for (int i = 0; i < kX; ++i) {
    const __m512i pairs = _mm512_add_epi32(_mm512_shuffle_i64x2(quads[0][i], quads[1][i], 0x88),
                                           _mm512_shuffle_i64x2(quads[0][i], quads[1][i], 0xdd));
    const __m256i low = _mm512_castsi512_si256(pairs), high = _mm512_extracti64x4_epi64(pairs, 1);
    const __m256i products =
        _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
    const __m256 e = _mm256_set1_ps(x[i].scales[index]);
    chains[i] = _mm256_fmadd_ps(_mm256_mul_ps(d, e), _mm256_cvtepi32_ps(products), chains[i]);
    if constexpr (F::kHasMinimum)
      chains[i] = _mm256_fnmadd_ps(_mm256_mul_ps(heads.m(), e),
                                   _mm256_cvtepi32_ps(heads.minima(x[i].sums + 16 * index)), chains[i]);
  }
}

}  // namespace tutti::codegen::blocks
