// The kinds of codes of code_lanes.h in registers of 16 rows, with the same numbers.
//
// Each has kPerWord, the codes in four bytes; kAlign, the codes between places of k where bytes begin; place(word,
// group), what else belongs to that word of a group of 16 rows; and numbers(words, place, to), all codes of the words
// as numbers. Private to the products of codes.
#pragma once

#include <immintrin.h>

#include <cstdint>

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::codes {

inline constexpr int64_t kWideLanes = 16;

// i8.
struct WideBytes {
  static constexpr int kPerWord = 4, kAlign = 1;
  static int64_t place(int64_t /*word*/, int64_t /*group*/) { return 0; }
  // As the last byte of 2^23 a code that is larger by 128 is that much more.
  [[gnu::always_inline, TUTTI_WIDE]] static void numbers(__m512i words, int64_t /*place*/, __m512 (&to)[kPerWord]) {
    const __m512i moved = _mm512_xor_si512(words, _mm512_set1_epi8(static_cast<char>(0x80)));
    for (int i = 0; i < kPerWord; ++i) {
      const __m512i from = _mm512_add_epi32(_mm512_set4_epi32(12, 8, 4, 0), _mm512_set1_epi32(i));
      const __m512i bits = _mm512_mask_shuffle_epi8(_mm512_set1_epi32(0x4b000000), 0x1111111111111111, moved, from);
      to[i] = _mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p23F + 128.0F));
    }
  }
};

// f8e4m3fn.
struct WideE4m3 {
  static constexpr int kPerWord = 4, kAlign = 1;
  static int64_t place(int64_t /*word*/, int64_t /*group*/) { return 0; }
  [[gnu::always_inline, TUTTI_WIDE]] static void numbers(__m512i words, int64_t /*place*/, __m512 (&to)[kPerWord]) {
    const __m512i nan = _mm512_set1_epi8(0x7f);
    if (_mm512_cmpeq_epi8_mask(_mm512_and_si512(words, nan), nan) == 0) {
      for (int i = 0; i < kPerWord; ++i) to[i] = number_of<false>(_mm512_slli_epi32(words, 24 - 8 * i));
    } else {
      for (int i = 0; i < kPerWord; ++i) to[i] = number_of<true>(_mm512_slli_epi32(words, 24 - 8 * i));
    }
  }

 private:
  // The highest byte of a word is the code; what is done with it is in E4m3Lanes.
  template <bool kMayBeNan>
  [[gnu::always_inline, TUTTI_WIDE]] static __m512 number_of(__m512i words) {
    __m512i bits = _mm512_and_si512(_mm512_srai_epi32(words, 4), _mm512_set1_epi32(static_cast<int32_t>(0x87f00000)));
    if constexpr (kMayBeNan) {
      const __m512i largest = _mm512_set1_epi32(0x07f00000);
      const __mmask16 is_nan = _mm512_cmpeq_epi32_mask(_mm512_and_si512(bits, largest), largest);
      bits = _mm512_mask_or_epi32(bits, is_nan, bits, _mm512_set1_epi32(0x7f800000));
    }
    return _mm512_mul_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(0x1p120F));
  }
};

// Numbers of f8e4m3fn without their signs: the upper half of the f32, whose lower half is 0, as two bytes.
struct E4m3Table {
  alignas(64) uint8_t high[128], low[128];
  constexpr E4m3Table() : high(), low() {
    for (int code = 0; code < 128; ++code) {
      int exponent = code >> 3, mantissa = code & 7;
      // Below 2^-6 a code counts steps of 2^-9.
      if (exponent == 0 && mantissa > 0)
        for (exponent = 1; mantissa < 8; --exponent) mantissa *= 2;
      const int half = code == 127 ? 0x7ff0 : code == 0 ? 0 : (exponent + 120) << 7 | (mantissa & 7) << 4;
      high[code] = static_cast<uint8_t>(half >> 8), low[code] = static_cast<uint8_t>(half & 255);
    }
  }
};
inline constexpr E4m3Table kE4m3Table;

// The same by a table, which takes fewer instructions and knows all codes, on processors that look up bytes.
struct WideE4m3Table : WideE4m3 {
  static bool is_supported() {
    static const bool is = cpu_target() >= CpuTarget::avx512vnni && __builtin_cpu_supports("avx512vbmi");
    return is;
  }
  [[gnu::always_inline, TUTTI_WIDE]] static void numbers(__m512i words, int64_t /*place*/, __m512 (&to)[kPerWord]) {
    // Code i of four rows becomes word i of their quarter.
    const __m512i turned =
        _mm512_shuffle_epi8(words, _mm512_set4_epi32(0x0f0b0703, 0x0e0a0602, 0x0d090501, 0x0c080400));
    constexpr int kSelect = 0xca;  // the bits of the second where those of the first are set, else those of the third
    const __m512i low = looked_up(turned, kE4m3Table.low);
    const __m512i high = _mm512_ternarylogic_epi32(_mm512_set1_epi8(static_cast<char>(0x80)), turned,
                                                   looked_up(turned, kE4m3Table.high), kSelect);
    const __m512i zero = _mm512_setzero_si512();
    const __m512i first = _mm512_unpacklo_epi8(low, high), last = _mm512_unpackhi_epi8(low, high);
    to[0] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, first));
    to[1] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, first));
    to[2] = _mm512_castsi512_ps(_mm512_unpacklo_epi16(zero, last));
    to[3] = _mm512_castsi512_ps(_mm512_unpackhi_epi16(zero, last));
  }

 private:
  // An instruction by itself, since its function could be inlined only where all code is for such processors. It reads
  // the low seven bits of an index.
  [[gnu::always_inline, TUTTI_WIDE]] static __m512i looked_up(__m512i indices, const uint8_t* table) {
    asm("vpermi2b %2, %1, %0" : "+v"(indices) : "v"(_mm512_load_si512(table)), "v"(_mm512_load_si512(table + 64)));
    return indices;
  }
};

// Two codes a byte, as in NibbleLanes.
struct WideNibbles {
  static constexpr int kPerWord = 8, kAlign = 8;
  explicit WideNibbles(const NibbleLanes& of)
      : of_(of), inverse_((uint64_t{1} << 32) / static_cast<uint64_t>(of.words_of_group) + 1) {}
  // The product with the inverse is the quotient for all words of a row of less than 2^32 / words_of_group.
  int64_t place(int64_t word, int64_t group) const {
    const auto of_codes = static_cast<int64_t>(static_cast<uint64_t>(word) * inverse_ >> 32);
    return (of_codes - of_.first_group) * of_.lanes + group * kWideLanes;
  }
  [[gnu::always_inline, TUTTI_WIDE]] void numbers(__m512i words, int64_t place, __m512 (&to)[kPerWord]) const {
    const __m512 scale = _mm512_loadu_ps(of_.scale + place), minimum = _mm512_loadu_ps(of_.minimum + place);
    for (int i = 0; i < kPerWord; ++i)
      to[i] = _mm512_fmadd_ps(code_of(_mm512_srli_epi32(words, 4 * i)), scale, minimum);
  }

 private:
  // Only the low four bits of a word choose.
  [[gnu::always_inline, TUTTI_WIDE]] static __m512 code_of(__m512i words) {
    return _mm512_permutexvar_ps(words, _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  }

  const NibbleLanes of_;
  const uint64_t inverse_;
};

// Calls fn(the kind of that name in wide registers).
template <class Fn>
void with_wide(const ByteLanes& /*lanes*/, Fn fn) {
  fn(WideBytes());
}
template <class Fn>
void with_wide(const E4m3Lanes& /*lanes*/, Fn fn) {
  if (WideE4m3Table::is_supported()) fn(WideE4m3Table());
  else fn(WideE4m3());
}
template <class Fn>
void with_wide(const NibbleLanes& lanes, Fn fn) {
  fn(WideNibbles(lanes));
}

}  // namespace tutti::codegen::codes
