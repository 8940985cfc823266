// Dot products of unpacked blocks, as in block_dots.h, with VPDPBUSD on 512 bits: the part of a chain that one leaf
// is, for sixteen rows of W. Private to wide_panels.cpp.
#pragma once

#include "tutti/codegen/blocks/wide_panel.h"

namespace tutti::codegen::blocks {

// Four codes, or two sums, of x for all rows of a panel.
TUTTI_DOTS_INLINE __m512i word_for_all(const void* x) {
  int32_t word;
  std::memcpy(&word, x, sizeof(word));
  return _mm512_set1_epi32(word);
}

// Adds `kWords` words of codes to a sum for each row of x. These are in groups of kGroup, which stand together.
template <int kWords, int kGroup, int kX>
TUTTI_DOTS_INLINE void add_words(const Byte* w, const RowsOfX (&x)[kX / kGroup], int64_t element, __m512i (&sums)[kX]) {
  for (int word = 0; word < kWords; ++word) {
    const __m512i codes = load64(w + 64 * word);
    for (int row = 0; row < kX; ++row) {
      const int8_t* of_x = x[row / kGroup].codes + kGroup * element + 4 * (word * kGroup + row % kGroup);
      sums[row] = _mm512_dpbusd_epi32(sums[row], codes, word_for_all(of_x));
    }
  }
}

TUTTI_DOTS_INLINE __m512 times_scale(const float (&of_w)[kWidePanelRows], float of_x) {
  return _mm512_mul_ps(_mm512_loadu_ps(of_w), _mm512_set1_ps(of_x));
}

// Codes of W are larger by `offset` than what they stand for.
template <bool kHasMinimum, int kGroup, int kX>
TUTTI_DOTS_INLINE void add_wide_blocks(const WideSmallPanel* w, int count, int offset, const RowsOfX (&x)[kX / kGroup],
                                       __m512 (&chains)[kX]) {
  const __m512i factors = _mm512_set1_epi16(static_cast<int16_t>(kHasMinimum ? 1 : -offset));
  for (int b = 0; b < count; ++b) {
    __m512i products[kX], of_sums[kX];
    for (int row = 0; row < kX; ++row) {
      const int16_t* sums = x[row / kGroup].sums + 2 * (b * kGroup + row % kGroup);
      of_sums[row] = _mm512_dpwssd_epi32(_mm512_setzero_si512(), factors, word_for_all(sums));
      products[row] = kHasMinimum ? _mm512_setzero_si512() : of_sums[row];
    }
    add_words<8, kGroup>(w[b].codes, x, kSmallBlock * b, products);
    for (int row = 0; row < kX; ++row) {
      const float e = x[row / kGroup].scales[b * kGroup + row % kGroup];
      chains[row] = _mm512_fmadd_ps(times_scale(w[b].d, e), _mm512_cvtepi32_ps(products[row]), chains[row]);
      if constexpr (kHasMinimum)
        chains[row] = _mm512_fmadd_ps(times_scale(w[b].m, e), _mm512_cvtepi32_ps(of_sums[row]), chains[row]);
    }
  }
}

template <bool kHasMinimum, int kSubBlock, int kGroup, int kX>
TUTTI_DOTS_INLINE void add_wide_blocks(const WideSuperPanel* w, int count, const RowsOfX (&x)[kX / kGroup],
                                       __m512 (&chains)[kX]) {
  for (int b = 0; b < count; ++b) {
    __m512i products[kX], minima[kX];
    for (int row = 0; row < kX; ++row) products[row] = minima[row] = _mm512_setzero_si512();
    for (int s = 0; s < kSuperBlock / kSubBlock; ++s) {
      __m512i dots[kX];
      for (int row = 0; row < kX; ++row) dots[row] = _mm512_setzero_si512();
      add_words<kSubBlock / 4, kGroup>(w[b].codes + s * kWidePanelRows * kSubBlock, x, kSuperBlock * b + kSubBlock * s,
                                       dots);
      const __m512i factor = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w[b].scales[s])));
      for (int row = 0; row < kX; ++row)
        products[row] = _mm512_add_epi32(products[row], _mm512_mullo_epi32(dots[row], factor));
    }
    for (int pair = 0; pair < 8; ++pair) {
      const __m512i factors = load64(w[b].minima[pair]);
      for (int row = 0; row < kX; ++row) {
        const int16_t* sums = x[row / kGroup].sums + 2 * ((8 * b + pair) * kGroup + row % kGroup);
        minima[row] = _mm512_dpwssd_epi32(minima[row], factors, word_for_all(sums));
      }
    }
    for (int row = 0; row < kX; ++row) {
      const float e = x[row / kGroup].scales[b * kGroup + row % kGroup];
      if constexpr (!kHasMinimum) products[row] = _mm512_sub_epi32(products[row], minima[row]);
      chains[row] = _mm512_fmadd_ps(times_scale(w[b].d, e), _mm512_cvtepi32_ps(products[row]), chains[row]);
      if constexpr (kHasMinimum)
        chains[row] = _mm512_fnmadd_ps(times_scale(w[b].m, e), _mm512_cvtepi32_ps(minima[row]), chains[row]);
    }
  }
}

}  // namespace tutti::codegen::blocks
