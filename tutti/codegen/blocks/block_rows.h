// Dot products of eight rows of blocks with few rows of x: codes are multiplied as they are decoded, in the order of
// their row, and the eight sums of each row are added across at the end of a block. Where x has more rows, unpacked
// panels cost less (block_dots.h). The integers, and so the bits, are the same. Private to block_product.cpp.
#pragma once

#include "tutti/codegen/blocks/block_dots.h"

namespace tutti::codegen::blocks {

// The f16 at `offset` of each block.
inline __m256 halves_at(const Byte* const (&b)[kPanelRows], int64_t offset) {
  const auto half = [&](int r) {
    int16_t bits;
    std::memcpy(&bits, b[r] + offset, sizeof(bits));
    return bits;
  };
  return _mm256_cvtph_ps(_mm_setr_epi16(half(0), half(1), half(2), half(3), half(4), half(5), half(6), half(7)));
}

inline const __m256i* at(const void* p) { return static_cast<const __m256i*>(p); }

// Adds block `index` of a leaf, at `b` in each of the rows, to the chains.
template <class F, int kX>
[[gnu::always_inline]] inline void add_small_block(const Byte* const (&b)[kPanelRows], int64_t index,
                                                   const RowsOfX (&x)[kX], __m256 (&chains)[kX]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[kX][kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) {
    const __m256i codes = F::codes(b[r]);
    for (int i = 0; i < kX; ++i) {
      const __m256i of_x = _mm256_loadu_si256(at(x[i].codes + kSmallBlock * index));
      sums[i][r] = _mm256_madd_epi16(pair_sums<F::kDotsOfSum>(codes, of_x), ones);
    }
  }
  const __m256 d = halves_at(b, 0);
  for (int i = 0; i < kX; ++i) {
    const int32_t codes = x[i].sums[2 * index] + x[i].sums[2 * index + 1];
    __m256i products = simd::sums_across(sums[i]);
    if constexpr (F::kOffset != 0) products = _mm256_sub_epi32(products, _mm256_set1_epi32(F::kOffset * codes));
    const __m256 e = _mm256_set1_ps(x[i].scales[index]);
    chains[i] = _mm256_fmadd_ps(_mm256_mul_ps(d, e), _mm256_cvtepi32_ps(products), chains[i]);
    if constexpr (F::kHasMinimum)
      chains[i] =
          _mm256_fmadd_ps(_mm256_mul_ps(halves_at(b, 2), e), _mm256_set1_ps(static_cast<float>(codes)), chains[i]);
  }
}

template <class F, int kX>
[[gnu::always_inline]] inline void add_super_block(const Byte* const (&b)[kPanelRows], int64_t index,
                                                   const RowsOfX (&x)[kX], __m256 (&chains)[kX]) {
  __m256i sums[kX][kPanelRows], minima[kX][kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) {
    const __m256i factors = F::factors(b[r]), of_minima = F::minima(b[r]);
    __m256i sum[kX];
    for (int i = 0; i < kX; ++i) {
      sum[i] = _mm256_setzero_si256();
      minima[i][r] = _mm256_madd_epi16(of_minima, _mm256_loadu_si256(at(x[i].sums + 16 * index)));
    }
    for (int chunk = 0; chunk < kSuperBlock / kChunk; ++chunk) {
      const __m256i codes = F::codes(b[r], chunk);
      // Word `chunk` of each half.
      const __m256i factor =
          _mm256_shuffle_epi8(factors, _mm256_set1_epi16(static_cast<int16_t>((2 * chunk + 1) << 8 | 2 * chunk)));
      for (int i = 0; i < kX; ++i) {
        const __m256i of_x = _mm256_loadu_si256(at(x[i].codes + kSuperBlock * index + kChunk * chunk));
        sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pair_sums<F::kDotsOfSum>(codes, of_x), factor));
      }
    }
    for (int i = 0; i < kX; ++i) sums[i][r] = sum[i];
  }
  const __m256 d = halves_at(b, F::scale(b[0]) - b[0]);
  for (int i = 0; i < kX; ++i) {
    __m256i products = simd::sums_across(sums[i]);
    const __m256i below = simd::sums_across(minima[i]);
    const __m256 e = _mm256_set1_ps(x[i].scales[index]);
    if constexpr (!F::kHasMinimum) products = _mm256_sub_epi32(products, below);
    chains[i] = _mm256_fmadd_ps(_mm256_mul_ps(d, e), _mm256_cvtepi32_ps(products), chains[i]);
    if constexpr (F::kHasMinimum)
      chains[i] = _mm256_fnmadd_ps(_mm256_mul_ps(halves_at(b, 2), e), _mm256_cvtepi32_ps(below), chains[i]);
  }
}

}  // namespace tutti::codegen::blocks
