// Codes of several rows side by side: four bytes of a row are one lane of a register, so that two shifts bring the
// codes of eight rows at one place of k to where they are numbers.
//
// A line is kLineBytes of each row: a line of the cache, all of which is used before that of the next eight rows is
// read. Rows whose distance is a power of two share few places in the first cache.
//
// A kind of codes has kPerWord, the codes in four bytes; may_be_special(words of a line), whether some need more care;
// place(word), what else belongs to that word of all rows; from(column), the same kind for the rows from there on; and
// numbers<kSpecial>(words, i, place, vector), code i of each of the words as numbers. Private to the products of codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace tutti::codegen::codes {

inline constexpr int64_t kLineBytes = 64, kLineWords = kLineBytes / 4;
// Lines that are asked for ahead of their use.
inline constexpr int64_t kLinesAhead = 4;

// Rows of codes that are columns of a product. Those that follow them are asked for before they are used.
struct CodeColumns {
  const uint8_t* first;
  int64_t stride;  // bytes between rows
  int64_t columns;
  int64_t bytes;  // of a row
  bool has_more;  // whether rows for the next registers follow
};

// What lies there, if anything, will be read.
inline void ask_for(const CodeColumns& c, int64_t row, int64_t offset) {
  const auto place = reinterpret_cast<uintptr_t>(c.first) + static_cast<uintptr_t>(row * c.stride + offset);
  _mm_prefetch(reinterpret_cast<const char*>(place), _MM_HINT_T0);
}

// Word q of row 8v + j becomes lane j of words[q][v]; zeros stand for rows and bytes that are not there.
template <int kVectors>
void load_line(const CodeColumns& c, int64_t line, __m256i (&words)[kLineWords][kVectors]) {
  const int64_t at = line * kLineBytes, count = std::min(kLineBytes, c.bytes - at);
  const int64_t ahead = at + kLinesAhead * kLineBytes;
  alignas(32) static constexpr uint8_t kZeros[kLineBytes] = {};
  for (int64_t v = 0; v < kVectors; ++v) {
    alignas(32) uint8_t rest[8][kLineBytes];
    const uint8_t* rows[8];
    for (int64_t j = 0; j < 8; ++j) {
      const int64_t row = 8 * v + j;
      rows[j] = row < c.columns ? c.first + row * c.stride + at : kZeros;
      if (ahead < c.bytes && row < c.columns) ask_for(c, row, ahead);
      else if (ahead >= c.bytes && c.has_more) ask_for(c, row + 8 * kVectors, ahead - c.bytes);
      if (count == kLineBytes || row >= c.columns) continue;
      std::fill_n(std::copy_n(rows[j], count, rest[j]), kLineBytes - count, uint8_t{0});
      rows[j] = rest[j];
    }
    for (int64_t q = 0; q < kLineWords; q += 4) {
      __m256i r[4];
      for (int64_t j = 0; j < 4; ++j)
        r[j] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rows[j + 4] + 4 * q),
                                   reinterpret_cast<const __m128i*>(rows[j] + 4 * q));
      const __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpacklo_epi32(r[2], r[3]);
      const __m256i d = _mm256_unpackhi_epi32(r[0], r[1]), e = _mm256_unpackhi_epi32(r[2], r[3]);
      words[q][v] = _mm256_unpacklo_epi64(a, b), words[q + 1][v] = _mm256_unpackhi_epi64(a, b);
      words[q + 2][v] = _mm256_unpacklo_epi64(d, e), words[q + 3][v] = _mm256_unpackhi_epi64(d, e);
    }
  }
}

// i8.
struct ByteLanes {
  static constexpr int64_t kPerWord = 4;
  template <int kVectors>
  static bool may_be_special(const __m256i (&)[kLineWords][kVectors]) {
    return false;
  }
  static int64_t place(int64_t /*word*/) { return 0; }
  auto from(int64_t /*column*/) const { return *this; }
  template <bool kSpecial>
  [[gnu::always_inline]] static __m256 numbers(__m256i words, int i, int64_t /*place*/, int /*vector*/) {
    return _mm256_cvtepi32_ps(_mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * i), 24));
  }
};

// f8e4m3fn: at the place of the exponent and the first digits of an f32, the bits of a code are 2^-120 of the number.
// NaN is special.
struct E4m3Lanes {
  static constexpr int64_t kPerWord = 4;
  template <int kVectors>
  static bool may_be_special(const __m256i (&words)[kLineWords][kVectors]) {
    const __m256i nan = _mm256_set1_epi8(0x7f);
    __m256i found = _mm256_setzero_si256();
    for (const auto& of_rows : words)
      for (const __m256i w : of_rows) found = _mm256_or_si256(found, _mm256_cmpeq_epi8(_mm256_and_si256(w, nan), nan));
    return _mm256_testz_si256(found, found) == 0;
  }
  static int64_t place(int64_t /*word*/) { return 0; }
  auto from(int64_t /*column*/) const { return *this; }
  template <bool kSpecial>
  [[gnu::always_inline]] static __m256 numbers(__m256i words, int i, int64_t /*place*/, int /*vector*/) {
    const __m256i moved = _mm256_srai_epi32(_mm256_slli_epi32(words, 24 - 8 * i), 4);
    __m256i bits = _mm256_and_si256(moved, _mm256_set1_epi32(static_cast<int32_t>(0x87f00000)));
    if constexpr (kSpecial) {
      const __m256i largest = _mm256_set1_epi32(0x07f00000);
      const __m256i is_nan = _mm256_cmpeq_epi32(_mm256_and_si256(bits, largest), largest);
      bits = _mm256_or_si256(bits, _mm256_and_si256(is_nan, _mm256_set1_epi32(0x7f800000)));
    }
    return _mm256_mul_ps(_mm256_castsi256_ps(bits), _mm256_set1_ps(0x1p120F));
  }
};

// Two codes a byte, the first in the low bits, of groups with a scale and a minimum: fma(code, scale, minimum).
struct NibbleLanes {
  static constexpr int64_t kPerWord = 8;
  const float* scale;  // [groups from the first on][all lanes]
  const float* minimum;
  int64_t words_of_group, lanes, first_group = 0;
  template <int kVectors>
  static bool may_be_special(const __m256i (&)[kLineWords][kVectors]) {
    return false;
  }
  int64_t place(int64_t word) const { return (word / words_of_group - first_group) * lanes; }
  NibbleLanes from(int64_t column) const {
    return {scale + column, minimum + column, words_of_group, lanes, first_group};
  }
  template <bool kSpecial>
  [[gnu::always_inline]] __m256 numbers(__m256i words, int i, int64_t place, int vector) const {
    const int64_t at = place + vector * 8;
    const __m256i codes = _mm256_and_si256(_mm256_srli_epi32(words, 4 * i), _mm256_set1_epi32(15));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(codes), _mm256_loadu_ps(scale + at), _mm256_loadu_ps(minimum + at));
  }
};

}  // namespace tutti::codegen::codes
