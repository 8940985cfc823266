// Dot products of unpacked blocks: the part of a chain that one leaf is. Private to narrow_panels.cpp.
#pragma once

#include "tutti/codegen/blocks/block_panel.h"

namespace tutti::codegen::blocks {

// Four codes of x for all rows of a panel.
inline __m256i four_codes(const int8_t* x) {
  int32_t word;
  std::memcpy(&word, x, sizeof(word));
  return _mm256_set1_epi32(word);
}
inline __m256i two_sums(const int16_t* sums) {
  int32_t word;
  std::memcpy(&word, sums, sizeof(word));
  return _mm256_set1_epi32(word);
}

// The products of four codes, added in pairs of 16 bits. Unsigned codes have at most 6 bits, and -128 * 127 twice fits
// as well.
template <int kDotsOfSum>
__m256i pair_sums(__m256i w, __m256i x) {
  if constexpr (kDotsOfSum == 0) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
  else return _mm256_maddubs_epi16(w, x);
}

// Ends an expression: else GCC adds in trees, whose leaves are more than there are registers.
inline __m256i in_order(__m256i v) {
  asm("" : "+x"(v));
  return v;
}

// The sums over `kWords` words of codes for kX rows of x, times `factors`: of each lane, as a pair of equal words.
template <int kDotsOfSum, int kWords, int kX>
[[gnu::always_inline]] inline void add_dots(const Byte* w, const int8_t* x, __m256i factors, __m256i (&sums)[kX]) {
  constexpr int kTogether = kDotsOfSum == 0 ? 1 : kDotsOfSum < kWords ? kDotsOfSum : kWords;
  for (int word = 0; word < kWords; word += kTogether) {
    __m256i pairs[kX];
    for (int i = 0; i < kTogether; ++i) {
      const __m256i codes = load32(w + (word + i) * 4 * kPanelRows);
      for (int row = 0; row < kX; ++row) {
        const __m256i p = pair_sums<kDotsOfSum>(codes, four_codes(x + 4 * ((word + i) * kX + row)));
        pairs[row] = in_order(i == 0 ? p : _mm256_add_epi16(pairs[row], p));
      }
    }
    for (int row = 0; row < kX; ++row) sums[row] = _mm256_add_epi32(sums[row], _mm256_madd_epi16(pairs[row], factors));
  }
}

inline __m256 scaled(const float* of_w, float of_x) {
  return _mm256_mul_ps(_mm256_loadu_ps(of_w), _mm256_set1_ps(of_x));
}

template <class F, int kX>
[[gnu::always_inline]] inline void add_blocks(const SmallPanel* w, int count, const RowsOfX& x, __m256 (&chains)[kX]) {
  const __m256i ones = _mm256_set1_epi16(1);
  for (int b = 0; b < count; ++b) {
    __m256i products[kX];
    for (__m256i& p : products) p = _mm256_setzero_si256();
    add_dots<F::kDotsOfSum, 8>(w[b].codes, x.codes + kX * kSmallBlock * b, ones, products);
    for (int row = 0; row < kX; ++row) {
      const int16_t* sums = x.sums + 2 * (b * kX + row);
      const int32_t codes = sums[0] + sums[1];
      if constexpr (F::kOffset != 0)
        products[row] = _mm256_sub_epi32(products[row], _mm256_set1_epi32(F::kOffset * codes));
      const float e = x.scales[b * kX + row];
      chains[row] = _mm256_fmadd_ps(scaled(w[b].d, e), _mm256_cvtepi32_ps(products[row]), chains[row]);
      if constexpr (F::kHasMinimum)
        chains[row] = _mm256_fmadd_ps(scaled(w[b].m, e), _mm256_set1_ps(static_cast<float>(codes)), chains[row]);
    }
  }
}

template <class F, int kX>
[[gnu::always_inline]] inline void add_blocks(const SuperPanel* w, int count, const RowsOfX& x, __m256 (&chains)[kX]) {
  constexpr int kSubBlocks = kSuperBlock / F::kSubBlock;
  for (int b = 0; b < count; ++b) {
    __m256i products[kX], minima[kX];
    for (int row = 0; row < kX; ++row) products[row] = minima[row] = _mm256_setzero_si256();
    for (int s = 0; s < kSubBlocks; ++s)
      add_dots<F::kDotsOfSum, F::kSubBlock / 4>(
          w[b].codes + s * kPanelRows * F::kSubBlock, x.codes + kX * (kSuperBlock * b + F::kSubBlock * s),
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w[b].scales[s])), products);
    for (int pair = 0; pair < 8; ++pair) {
      const __m256i factors = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(w[b].minima[pair]));
      for (int row = 0; row < kX; ++row)
        minima[row] = _mm256_add_epi32(minima[row],
                                       _mm256_madd_epi16(factors, two_sums(x.sums + 2 * ((8 * b + pair) * kX + row))));
    }
    for (int row = 0; row < kX; ++row) {
      const float e = x.scales[b * kX + row];
      if constexpr (!F::kHasMinimum) products[row] = _mm256_sub_epi32(products[row], minima[row]);
      chains[row] = _mm256_fmadd_ps(scaled(w[b].d, e), _mm256_cvtepi32_ps(products[row]), chains[row]);
      if constexpr (F::kHasMinimum)
        chains[row] = _mm256_fnmadd_ps(scaled(w[b].m, e), _mm256_cvtepi32_ps(minima[row]), chains[row]);
    }
  }
}

}  // namespace tutti::codegen::blocks
