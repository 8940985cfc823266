// Sixteen rows of block-quantized weights, unpacked for dot products of 512 bits: codes of four neighbouring elements
// of each row stand in the sixteen 32-bit lanes of a register. Codes have no sign. Private to wide_panels.cpp.
#pragma once

#include "tutti/codegen/blocks/wide_codes.h"

namespace tutti::codegen::blocks {

inline constexpr int64_t kWidePanelRows = 16;

struct WideSmallPanel {
  Byte codes[kWidePanelRows * kSmallBlock];
  float d[kWidePanelRows], m[kWidePanelRows];
};
struct WideSuperPanel {
  Byte codes[kWidePanelRows * kSuperBlock];
  int8_t scales[16][kWidePanelRows];      // of a sub-block
  int16_t minima[8][2 * kWidePanelRows];  // the factors of the sums of 16 and the next 16 activations
  float d[kWidePanelRows], m[kWidePanelRows];
};

// Word w of row r becomes word r of register w: the first eight words are stored at `low`, the others at `high`.
TUTTI_DOTS_INLINE void store_turned(__m512i (&rows)[16], Byte* low, Byte* high) {
  simd::transpose_words(rows);
  for (int w = 0; w < 8; ++w) {
    _mm512_storeu_si512(low + 64 * w, rows[w]);
    _mm512_storeu_si512(high + 64 * w, rows[8 + w]);
  }
}

// The f16 at `offset` of the blocks at `b`, and those of the blocks behind them.
template <class F>
TUTTI_DOTS_INLINE void store_pair_halves(const Byte* const (&b)[kWidePanelRows], int64_t offset, float* first,
                                         float* second) {
  const __m512 low = pair_halves_at<F>({b}, offset), high = pair_halves_at<F>({b + kPanelRows}, offset);
  _mm512_storeu_ps(first, _mm512_shuffle_f32x4(low, high, 0x44));
  _mm512_storeu_ps(second, _mm512_shuffle_f32x4(low, high, 0xee));
}

// The blocks at `b` of sixteen rows, and those behind them where `is_pair`.
template <class F>
TUTTI_DOTS_INLINE void unpack_wide(const Byte* const (&b)[kWidePanelRows], bool is_pair, WideSmallPanel* to) {
  const int64_t second = is_pair ? F::kBytes : 0;
  __m512i rows[kWidePanelRows];
  for (int r = 0; r < kWidePanelRows; ++r) rows[r] = WideSmall<F>::codes(b[r], b[r] + second);
  store_turned(rows, to[0].codes, to[is_pair].codes);
  if (is_pair) {
    store_pair_halves<F>(b, 0, to[0].d, to[1].d);
    if constexpr (F::kHasMinimum) store_pair_halves<F>(b, 2, to[0].m, to[1].m);
    return;
  }
  for (int64_t r = 0; r < kWidePanelRows; ++r) {
    to->d[r] = half_at(b[r]);
    if constexpr (F::kHasMinimum) to->m[r] = half_at(b[r] + 2);
  }
}

template <class F>
TUTTI_DOTS_INLINE __m512i scale_bytes_of(const Byte* const (&b)[kWidePanelRows], int first) {
  if constexpr (F::kHasMinimum)
    return scales_and_minima(four_rows(b[first], b[first + 4], b[first + 8], b[first + 12]));
  else return four_rows(b[first] + 192, b[first + 4] + 192, b[first + 8] + 192, b[first + 12] + 192);
}

// Byte i of all rows is the 16 bytes at bytes[i].
template <class F>
TUTTI_DOTS_INLINE void turn_scales(const Byte* const (&b)[kWidePanelRows], Byte (&bytes)[16][kWidePanelRows]) {
  const __m512i r0 = scale_bytes_of<F>(b, 0), r1 = scale_bytes_of<F>(b, 1);
  const __m512i r2 = scale_bytes_of<F>(b, 2), r3 = scale_bytes_of<F>(b, 3);
  // Words of two rows, then words of four rows, whose quarters hold rows 0 to 3, 4 to 7 and so on.
  const __m512i low01 = _mm512_unpacklo_epi8(r0, r1), high01 = _mm512_unpackhi_epi8(r0, r1);
  const __m512i low23 = _mm512_unpacklo_epi8(r2, r3), high23 = _mm512_unpackhi_epi8(r2, r3);
  const __m512i fours[4] = {_mm512_unpacklo_epi16(low01, low23), _mm512_unpackhi_epi16(low01, low23),
                            _mm512_unpacklo_epi16(high01, high23), _mm512_unpackhi_epi16(high01, high23)};
  const __m512i turned = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
  for (int i = 0; i < 4; ++i) _mm512_storeu_si512(bytes[4 * i], _mm512_permutexvar_epi32(turned, fours[i]));
}

template <class F>
TUTTI_DOTS_INLINE void unpack_wide(const Byte* const (&b)[kWidePanelRows], WideSuperPanel& to) {
  using Wide = WideSuper<F>;
  constexpr int64_t kChunkBytes = kWidePanelRows * kChunk;
  for (int q = 0; q < kSuperBlock / 64; ++q) {
    __m512i rows[kWidePanelRows];
    for (int r = 0; r < kWidePanelRows; ++r) rows[r] = Wide::codes(b[r], q);
    Byte* low = to.codes + kChunkBytes * Wide::first_of(q);
    store_turned(rows, low, low + kChunkBytes * Wide::kBetween);
  }
  Byte bytes[16][kWidePanelRows];
  turn_scales<F>(b, bytes);
  std::memcpy(to.scales, bytes, sizeof(to.scales));
  for (int pair = 0; pair < 8; ++pair) {
    const __m128i even = load16(F::kHasMinimum ? bytes[8 + pair] : bytes[2 * pair]);
    const __m128i odd = F::kHasMinimum ? even : load16(bytes[2 * pair + 1]);
    const __m256i both = _mm256_set_m128i(_mm_unpackhi_epi8(even, odd), _mm_unpacklo_epi8(even, odd));
    const __m512i factors = _mm512_cvtepi8_epi16(both);
    _mm512_storeu_si512(to.minima[pair], F::kHasMinimum ? factors : _mm512_slli_epi16(factors, 5));
  }
  for (int64_t r = 0; r < kWidePanelRows; ++r) {
    to.d[r] = half_at(F::scale(b[r]));
    if constexpr (F::kHasMinimum) to.m[r] = half_at(b[r] + 2);
  }
}

}  // namespace tutti::codegen::blocks
