// 64 codes of a row of block-quantized weights in one register, for processors with VPDPBUSD on 512 bits. Private to
// wide_panels.cpp.
//
// The files of the program are compiled for AVX2. What is marked with TUTTI_DOTS here may use AVX-512; it is called
// where cpu_target() has avx512vnni. Codes have no sign: those of Q8_0 are 128 larger than what they stand for.
#pragma once

#include "tutti/codegen/blocks/block_rows.h"
#include "tutti/codegen/gemm/wide.h"

#define TUTTI_DOTS_INLINE [[TUTTI_DOTS, gnu::always_inline]] inline

namespace tutti::codegen::blocks {

TUTTI_DOTS_INLINE __m512i load64(const void* p) { return _mm512_loadu_si512(p); }
TUTTI_DOTS_INLINE __m512i twice16(const Byte* p) { return _mm512_broadcast_i32x4(load16(p)); }
TUTTI_DOTS_INLINE __m512i twice32(const Byte* p) { return _mm512_broadcast_i64x4(load32(p)); }
TUTTI_DOTS_INLINE __m512i joined(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
TUTTI_DOTS_INLINE __m512i low_nibbles(__m512i v) { return _mm512_and_si512(v, _mm512_set1_epi8(15)); }
TUTTI_DOTS_INLINE __m512i high_nibbles(__m512i v) { return low_nibbles(_mm512_srli_epi16(v, 4)); }
// a where the bit of the mask is not set and b where it is.
TUTTI_DOTS_INLINE __m512i merged(__m512i a, __m512i b, int mask) {
  return _mm512_ternarylogic_epi32(a, b, _mm512_set1_epi8(static_cast<char>(mask)), 0xd8);
}
// Bits of a byte move to the left; what comes from its neighbours is not to be read.
TUTTI_DOTS_INLINE __m512i moved(__m512i v, int low, int high) {
  const __m256i of_low = _mm256_set1_epi32(low & 31), of_high = _mm256_set1_epi32(high & 31);
  return _mm512_rolv_epi32(v, joined(of_low, of_high));
}

// ---- Blocks of 32: those at `a` and `b`

// The low halves of 16 bytes and their high halves, for each block.
TUTTI_DOTS_INLINE __m512i nibbles(const Byte* a, const Byte* b) {
  const __m512i bytes = _mm512_mask_broadcast_i32x4(twice16(a), 0xff00, load16(b));
  const __m512i shifts = _mm512_setr_epi64(0, 0, 4, 4, 0, 0, 4, 4);
  return low_nibbles(_mm512_srlv_epi64(bytes, shifts));
}
// Adds 16 where the bit of the element is set.
TUTTI_DOTS_INLINE __m512i with_fifth_bits(__m512i codes, const Byte* a, const Byte* b) {
  const uint64_t bits = word_at(a) | static_cast<uint64_t>(word_at(b)) << 32;
  return _mm512_mask_add_epi8(codes, bits, codes, _mm512_set1_epi8(16));
}

// Word `offset` / 2 of a block of each row, then that of the blocks behind them.
template <class F>
TUTTI_DOTS_INLINE __m512 pair_halves_at(const RowsOfW& b, int64_t offset) {
  constexpr int64_t kWords = F::kBytes / 2;
  if constexpr (kWords >= 16) {
    return _mm512_cvtph_ps(_mm256_set_m128i(words_at(b, F::kBytes + offset), words_at(b, offset)));
  } else {
    // Pairs of rows, each in all places where pairs may be.
    const auto first = static_cast<int>(offset / 2), second = static_cast<int>(kWords + offset / 2);
    const __m256i from =
        _mm256_set_m128i(_mm_set1_epi32((16 + second) << 16 | second), _mm_set1_epi32((16 + first) << 16 | first));
    __m256i pairs[4];
    for (int p = 0; p < 4; ++p) pairs[p] = _mm256_permutex2var_epi16(load32(b[2 * p]), from, load32(b[2 * p + 1]));
    const __m256i words = _mm256_blend_epi32(_mm256_blend_epi32(pairs[0], pairs[1], 0x22),
                                             _mm256_blend_epi32(pairs[2], pairs[3], 0x88), 0xcc);
    return _mm512_cvtph_ps(words);
  }
}

template <class F>
struct WideSmall;
template <>
struct WideSmall<Q4_0> {
  static constexpr int kOffset = 8, kLargest = 8;
  TUTTI_DOTS_INLINE static __m512i codes(const Byte* a, const Byte* b) { return nibbles(a + 2, b + 2); }
};
template <>
struct WideSmall<Q4_1> {
  static constexpr int kOffset = 0, kLargest = 15;
  TUTTI_DOTS_INLINE static __m512i codes(const Byte* a, const Byte* b) { return nibbles(a + 4, b + 4); }
};
template <>
struct WideSmall<Q5_0> {
  static constexpr int kOffset = 16, kLargest = 16;
  TUTTI_DOTS_INLINE static __m512i codes(const Byte* a, const Byte* b) {
    return with_fifth_bits(nibbles(a + 6, b + 6), a + 2, b + 2);
  }
};
template <>
struct WideSmall<Q5_1> {
  static constexpr int kOffset = 0, kLargest = 31;
  TUTTI_DOTS_INLINE static __m512i codes(const Byte* a, const Byte* b) {
    return with_fifth_bits(nibbles(a + 8, b + 8), a + 4, b + 4);
  }
};
template <>
struct WideSmall<Q8_0> {
  static constexpr int kOffset = 128, kLargest = 128;
  TUTTI_DOTS_INLINE static __m512i codes(const Byte* a, const Byte* b) {
    return _mm512_xor_si512(joined(load32(a + 2), load32(b + 2)), _mm512_set1_epi8(-128));
  }
};

// ---- Blocks of 256, a quarter at a time: two chunks of 32

// first_of(q): the chunk in the lower half of quarter q. That in its upper half is kBetween further on.
template <class F>
struct WideSuper;

template <>
struct WideSuper<Q4_K> {
  static constexpr int kBetween = 2;
  static constexpr int first_of(int quarter) { return quarter / 2 * 4 + quarter % 2; }
  TUTTI_DOTS_INLINE static __m512i codes(const Byte* b, int quarter) {
    const __m512i v = load64(b + 16 + 64 * (quarter / 2));
    return quarter % 2 == 0 ? low_nibbles(v) : high_nibbles(v);
  }
};
template <>
struct WideSuper<Q5_K> {
  static constexpr int kBetween = 2;
  static constexpr int first_of(int quarter) { return quarter / 2 * 4 + quarter % 2; }
  TUTTI_DOTS_INLINE static __m512i codes(const Byte* b, int quarter) {
    const __m512i v = load64(b + 48 + 64 * (quarter / 2));
    const int chunk = first_of(quarter);
    const __m512i fifth = moved(twice32(b + 16), 4 - chunk, 4 - chunk - kBetween);
    return _mm512_and_si512(merged(fifth, quarter % 2 == 0 ? v : _mm512_srli_epi16(v, 4), 15), _mm512_set1_epi8(31));
  }
};
template <>
struct WideSuper<Q6_K> {
  static constexpr int kBetween = 1;
  static constexpr int first_of(int quarter) { return 2 * quarter; }
  TUTTI_DOTS_INLINE static __m512i codes(const Byte* b, int quarter) {
    const __m512i v = load64(b + 64 * (quarter / 2)), high = twice32(b + 128 + 32 * (quarter / 2));
    const __m512i upper = quarter % 2 == 0 ? moved(high, 4, 2) : moved(high, 0, -2);
    return _mm512_and_si512(merged(upper, quarter % 2 == 0 ? v : _mm512_srli_epi16(v, 4), 15), _mm512_set1_epi8(63));
  }
};

// ---- The first 16 bytes of Q4_K and Q5_K: d, dmin, and 6 bits for each scale and minimum of eight sub-blocks

// Each lane of 128 bits holds the bytes of one of four rows.
TUTTI_DOTS_INLINE __m512i four_rows(const Byte* a, const Byte* b, const Byte* c, const Byte* d) {
  const __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(a)), load16(b), 1);
  const __m256i high = _mm256_inserti128_si256(_mm256_castsi128_si256(load16(c)), load16(d), 1);
  return joined(low, high);
}
// The bytes of the eight scales, then those of the minima, in each lane. See scale_bytes().
TUTTI_DOTS_INLINE __m512i scales_and_minima(__m512i heads) {
  const __m512i low = _mm512_srlv_epi32(_mm512_shuffle_epi32(heads, _MM_PERM_DCDB), _mm512_setr4_epi32(0, 0, 0, 4));
  const __m512i high = _mm512_srlv_epi32(_mm512_shuffle_epi32(heads, _MM_PERM_CCBB), _mm512_setr4_epi32(0, 2, 0, 2));
  return _mm512_or_si512(_mm512_and_si512(low, _mm512_setr4_epi32(0x3f3f3f3f, 0x0f0f0f0f, 0x3f3f3f3f, 0x0f0f0f0f)),
                         _mm512_and_si512(high, _mm512_setr4_epi32(0, 0x30303030, 0, 0x30303030)));
}

}  // namespace tutti::codegen::blocks
