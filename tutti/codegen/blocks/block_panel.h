// Eight rows of block-quantized weights, unpacked for dot products: codes of four neighbouring elements of each row
// stand in the eight 32-bit lanes of a register, so that sums over k need no addition across lanes.
// Private to block_product().
//
// Codes are unsigned where the format has at most 6 bits, and as they stand in Q8_0. The layouts are those of
// core/block_codec.cpp.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tutti/codegen/blocks/activation_rows.h"
#include "tutti/codegen/gemm/simd.h"
#include "tutti/core/block_format.h"

namespace tutti::codegen::blocks {

inline constexpr int64_t kPanelRows = 8;
inline constexpr int64_t kChunk = 32;  // elements of a row that are unpacked at a time

using Byte = unsigned char;

// Rows of activations that stand together, from a block on.
struct RowsOfX {
  const int8_t* codes;
  const float* scales;
  const int16_t* sums;
};

inline float half_at(const Byte* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return _cvtsh_ss(bits);
}
inline uint32_t word_at(const Byte* p) {
  uint32_t word;
  std::memcpy(&word, p, sizeof(word));
  return word;
}
inline __m128i load16(const Byte* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline __m256i load32(const Byte* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
inline __m256i low_nibbles(__m256i v) { return _mm256_and_si256(v, _mm256_set1_epi8(15)); }
inline __m256i high_nibbles(__m256i v) { return low_nibbles(_mm256_srli_epi16(v, 4)); }

// The low halves of 16 bytes, then their high halves.
inline __m256i nibbles(const Byte* p) {
  const __m128i v = load16(p);
  return low_nibbles(_mm256_set_m128i(_mm_srli_epi16(v, 4), v));
}
// 16 where the bit of the element is set.
inline __m256i fifth_bits(uint32_t bits) {
  const __m256i each = _mm256_shuffle_epi8(
      _mm256_set1_epi32(static_cast<int32_t>(bits)),
      _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3));
  const __m256i mask = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201ULL));
  return _mm256_and_si256(_mm256_cmpeq_epi8(_mm256_and_si256(each, mask), mask), _mm256_set1_epi8(16));
}
// Each of eight bytes as a pair of equal 16-bit integers.
inline __m256i pairs_of_equals(__m256i words) {
  return _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32(words, 16));
}

// ---- Blocks of 32: one scale, and a minimum for Q4_1 and Q5_1

struct SmallPanel {
  Byte codes[kPanelRows * kSmallBlock];
  float d[kPanelRows], m[kPanelRows];
};

// kDotsOfSum: how many products of four codes may be added in 16 bits; 0: codes are signed.
struct Q4_0 {
  static constexpr int kBytes = 18, kDotsOfSum = 8, kOffset = 8;
  static constexpr bool kHasMinimum = false;
  static __m256i codes(const Byte* b) { return nibbles(b + 2); }
};
struct Q4_1 {
  static constexpr int kBytes = 20, kDotsOfSum = 8, kOffset = 0;
  static constexpr bool kHasMinimum = true;
  static __m256i codes(const Byte* b) { return nibbles(b + 4); }
};
struct Q5_0 {
  static constexpr int kBytes = 22, kDotsOfSum = 4, kOffset = 16;
  static constexpr bool kHasMinimum = false;
  static __m256i codes(const Byte* b) { return _mm256_or_si256(nibbles(b + 6), fifth_bits(word_at(b + 2))); }
};
struct Q5_1 {
  static constexpr int kBytes = 24, kDotsOfSum = 4, kOffset = 0;
  static constexpr bool kHasMinimum = true;
  static __m256i codes(const Byte* b) { return _mm256_or_si256(nibbles(b + 8), fifth_bits(word_at(b + 4))); }
};
struct Q8_0 {
  static constexpr int kBytes = 34, kDotsOfSum = 0, kOffset = 0;
  static constexpr bool kHasMinimum = false;
  static __m256i codes(const Byte* b) { return load32(b + 2); }
};

// ---- Blocks of 256: a scale for each 16 or 32 elements, and a minimum for Q4_K and Q5_K

struct SuperPanel {
  Byte codes[kPanelRows * kSuperBlock];
  int16_t scales[16][2 * kPanelRows];  // of a sub-block, each twice
  int16_t minima[8][2 * kPanelRows];   // the factors of the sums of 16 and the next 16 activations
  float d[kPanelRows], m[kPanelRows];
};

struct ScaleBytes {
  uint64_t scales, minima;  // of the eight sub-blocks of 32
};
// The 12 bytes of Q4_K and Q5_K as words of four.
inline ScaleBytes scale_bytes(const Byte* p) {
  const uint32_t a = word_at(p), b = word_at(p + 4), c = word_at(p + 8);
  const uint32_t low_scales = a & 0x3f3f3f3f, low_minima = b & 0x3f3f3f3f;
  const uint32_t high_scales = (c & 0x0f0f0f0f) | (a >> 6 & 0x03030303) << 4;
  const uint32_t high_minima = (c >> 4 & 0x0f0f0f0f) | (b >> 6 & 0x03030303) << 4;
  return {low_scales | static_cast<uint64_t>(high_scales) << 32, low_minima | static_cast<uint64_t>(high_minima) << 32};
}
// Eight bytes as words of two, in both halves.
inline __m256i twice(uint64_t bytes) {
  return _mm256_broadcastsi128_si256(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(static_cast<int64_t>(bytes))));
}
inline __m256i words_of(uint64_t bytes) { return _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(static_cast<int64_t>(bytes))); }

// factors: the scales of chunk c, as words of two, are word c of the lower and of the upper 16 bytes.
struct Q4_K {
  static constexpr int kBytes = 144, kDotsOfSum = 8, kSubBlock = 32;
  static constexpr bool kHasMinimum = true;
  static const Byte* scale(const Byte* b) { return b; }
  static __m256i codes(const Byte* b, int chunk) {
    const __m256i v = load32(b + 16 + 32 * (chunk / 2));
    return chunk % 2 == 0 ? low_nibbles(v) : high_nibbles(v);
  }
  static __m256i scales(const Byte* b, int) { return pairs_of_equals(words_of(scale_bytes(b + 4).scales)); }
  static __m256i factors(const Byte* b) { return twice(scale_bytes(b + 4).scales); }
  static __m256i minima(const Byte* b) { return pairs_of_equals(words_of(scale_bytes(b + 4).minima)); }
};
struct Q5_K {
  static constexpr int kBytes = 176, kDotsOfSum = 4, kSubBlock = 32;
  static constexpr bool kHasMinimum = true;
  static const Byte* scale(const Byte* b) { return b; }
  static __m256i codes(const Byte* b, int chunk) {
    const __m256i v = load32(b + 48 + 32 * (chunk / 2));
    const __m256i fifth =
        _mm256_and_si256(_mm256_srl_epi16(load32(b + 16), _mm_cvtsi32_si128(chunk)), _mm256_set1_epi8(1));
    return _mm256_or_si256(chunk % 2 == 0 ? low_nibbles(v) : high_nibbles(v), _mm256_slli_epi16(fifth, 4));
  }
  static __m256i scales(const Byte* b, int) { return pairs_of_equals(words_of(scale_bytes(b + 4).scales)); }
  static __m256i factors(const Byte* b) { return twice(scale_bytes(b + 4).scales); }
  static __m256i minima(const Byte* b) { return pairs_of_equals(words_of(scale_bytes(b + 4).minima)); }
};
// The minimum of a sub-block is what 32 below its codes takes away: 32 times its scale.
struct Q6_K {
  static constexpr int kBytes = 210, kDotsOfSum = 2, kSubBlock = 16;
  static constexpr bool kHasMinimum = false;
  static const Byte* scale(const Byte* b) { return b + 208; }
  static __m256i codes(const Byte* b, int chunk) {
    const int half = chunk / 4, quarter = chunk % 4;
    const __m256i v = load32(b + 64 * half + 32 * (quarter % 2));
    const __m256i high = _mm256_srl_epi16(load32(b + 128 + 32 * half), _mm_cvtsi32_si128(2 * quarter));
    return _mm256_or_si256(quarter < 2 ? low_nibbles(v) : high_nibbles(v),
                           _mm256_slli_epi16(_mm256_and_si256(high, _mm256_set1_epi8(3)), 4));
  }
  static __m256i scales(const Byte* b, int half) {
    return pairs_of_equals(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(b + 192 + 8 * half))));
  }
  static __m256i factors(const Byte* b) {
    const __m128i even_then_odd =
        _mm_shuffle_epi8(load16(b + 192), _mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));
    return _mm256_cvtepi8_epi16(even_then_odd);
  }
  static __m256i minima(const Byte* b) { return _mm256_slli_epi16(_mm256_cvtepi8_epi16(load16(b + 192)), 5); }
};

template <class F>
inline constexpr bool is_small = F::kBytes < 64;
template <class F>
using PanelOf = std::conditional_t<is_small<F>, SmallPanel, SuperPanel>;

// ---- Unpacking

// Word w of row r becomes word r of register w.
template <class Load>
[[gnu::always_inline]] inline void store_turned(Load load, void* to) {
  __m256 rows[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) rows[r] = _mm256_castsi256_ps(load(r));
  simd::Block<float>::transpose(rows);
  for (int64_t w = 0; w < kPanelRows; ++w) _mm256_storeu_ps(static_cast<float*>(to) + kPanelRows * w, rows[w]);
}

// The blocks at `b` of eight rows.
template <class F>
void unpack(const Byte* const (&b)[kPanelRows], SmallPanel& to) {
  store_turned([&](int64_t r) { return F::codes(b[r]); }, to.codes);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    to.d[r] = half_at(b[r]);
    if constexpr (F::kHasMinimum) to.m[r] = half_at(b[r] + 2);
  }
}

template <class F>
void unpack(const Byte* const (&b)[kPanelRows], SuperPanel& to) {
  for (int chunk = 0; chunk < kSuperBlock / kChunk; ++chunk)
    store_turned([&](int64_t r) { return F::codes(b[r], chunk); }, to.codes + chunk * kPanelRows * kChunk);
  for (int part = 0; part < kSuperBlock / F::kSubBlock / 8; ++part)
    store_turned([&](int64_t r) { return F::scales(b[r], part); }, to.scales[8 * part]);
  store_turned([&](int64_t r) { return F::minima(b[r]); }, to.minima);
  for (int64_t r = 0; r < kPanelRows; ++r) {
    to.d[r] = half_at(F::scale(b[r]));
    if constexpr (F::kHasMinimum) to.m[r] = half_at(b[r] + 2);
  }
}

}  // namespace tutti::codegen::blocks
