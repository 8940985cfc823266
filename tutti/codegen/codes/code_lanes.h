// Codes of several rows side by side: four bytes of a row are one lane of a register, so that two shifts bring the
// codes of eight rows at one place of k to where they are numbers.
//
// A line is kLineBytes of each row: a line of the cache, all of which is used before that of the next eight rows is
// read. Rows whose distance is a power of two share few places in the first cache.
//
// A kind of codes has kPerWord, the codes in four bytes; kHasSpecial, whether some need more care, and
// may_be_special(words of a line), whether they are among those; place(word), what else belongs to that word of all
// rows; from(column), the same kind for the rows from there on; and numbers<kSpecial>(words, i, place, vector), code i
// of each of the words as numbers. A sink takes what visit_codes() makes of words. wide_lanes.h has the same kinds for
// registers of 16 lanes. Private to the products of codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>

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

// What lies there, if anything, will be read. Into the second cache: rows whose distance is a power of two would push
// each other out of the first.
inline void ask_for(const CodeColumns& c, int64_t row, int64_t offset) {
  const auto place = reinterpret_cast<uintptr_t>(c.first) + static_cast<uintptr_t>(row * c.stride + offset);
  _mm_prefetch(reinterpret_cast<const char*>(place), _MM_HINT_T1);
}

// Where the lines of kLanes rows from `first` on begin, of which a pass takes `all`. Zeros stand for rows and bytes
// that are not there; `rest` holds copies of lines that end early. Lines further on are asked for.
template <int kLanes>
void find_line(const CodeColumns& c, int64_t line, int64_t first, int64_t all, uint8_t (&rest)[kLanes][kLineBytes],
               const uint8_t* (&rows)[kLanes]) {
  alignas(64) static constexpr uint8_t kZeros[kLineBytes] = {};
  const int64_t at = line * kLineBytes, count = std::min(kLineBytes, c.bytes - at);
  const int64_t there = std::clamp<int64_t>(c.columns - first, 0, kLanes), ahead = at + kLinesAhead * kLineBytes;
  if (ahead < c.bytes) {
    for (int64_t j = 0; j < there; ++j) ask_for(c, first + j, ahead);
  } else if (c.has_more) {
    for (int64_t j = 0; j < kLanes; ++j) ask_for(c, first + j + all, ahead - c.bytes);
  }
  for (int64_t j = 0; j < kLanes; ++j) rows[j] = j < there ? c.first + (first + j) * c.stride + at : kZeros;
  for (int64_t j = 0; j < there && count < kLineBytes; ++j) {
    std::fill(std::copy_n(rows[j], count, rest[j]), rest[j] + kLineBytes, uint8_t{0});
    rows[j] = rest[j];
  }
}

// How registers of eight lanes read lines: words[q * columns + j] becomes word q of row j.
struct NarrowForm {
  static constexpr int kLanes = 8;

  template <int kVectors>
  static void load_line(const CodeColumns& c, int64_t line, uint32_t* words) {
    constexpr int64_t kColumns = kVectors * kLanes;
    for (int64_t v = 0; v < kVectors; ++v) {
      uint8_t rest[kLanes][kLineBytes];
      const uint8_t* rows[kLanes];
      find_line<kLanes>(c, line, v * kLanes, kColumns, rest, rows);
      const auto store = [&](int64_t q, __m256i of_rows) {
        _mm256_store_si256(reinterpret_cast<__m256i*>(words + q * kColumns + v * kLanes), of_rows);
      };
      for (int64_t q = 0; q < kLineWords; q += 4) {
        __m256i r[4];
        for (int64_t j = 0; j < 4; ++j)
          r[j] = _mm256_loadu2_m128i(reinterpret_cast<const __m128i*>(rows[j + 4] + 4 * q),
                                     reinterpret_cast<const __m128i*>(rows[j] + 4 * q));
        const __m256i a = _mm256_unpacklo_epi32(r[0], r[1]), b = _mm256_unpacklo_epi32(r[2], r[3]);
        const __m256i d = _mm256_unpackhi_epi32(r[0], r[1]), e = _mm256_unpackhi_epi32(r[2], r[3]);
        store(q, _mm256_unpacklo_epi64(a, b)), store(q + 1, _mm256_unpackhi_epi64(a, b));
        store(q + 2, _mm256_unpacklo_epi64(d, e)), store(q + 3, _mm256_unpackhi_epi64(d, e));
      }
    }
  }

  // Hands code i of each of the words in turn to sink.take(k, vector, numbers), for the codes [begin, end) of k of a
  // line whose first word is number first_word of its row.
  template <bool kSpecial, int kVectors, class Lanes, class Sink>
  [[gnu::always_inline]] static void visit_codes(const Lanes& lanes, const uint32_t* words, int64_t first_word,
                                                 int64_t begin, int64_t end, Sink& sink) {
    for (int64_t p = begin; p < end;) {
      const int64_t word = p / Lanes::kPerWord, next = std::min(end, (word + 1) * Lanes::kPerWord);
      const int64_t place = lanes.place(word);
      const uint32_t* of_rows = words + (word - first_word) * kVectors * kLanes;
      if (next - p == Lanes::kPerWord) {
#pragma GCC unroll 8
        for (int i = 0; i < static_cast<int>(Lanes::kPerWord); ++i)
          visit_code<kSpecial, kVectors>(lanes, of_rows, i, place, p + i, sink);
        p = next;
      } else {
        for (; p < next; ++p)
          visit_code<kSpecial, kVectors>(lanes, of_rows, static_cast<int>(p % Lanes::kPerWord), place, p, sink);
      }
    }
  }
  template <bool kSpecial, int kVectors, class Lanes, class Sink>
  [[gnu::always_inline]] static void visit_code(const Lanes& lanes, const uint32_t* of_rows, int i, int64_t place,
                                                int64_t k, Sink& sink) {
    for (int v = 0; v < kVectors; ++v) {
      const __m256i word = _mm256_load_si256(reinterpret_cast<const __m256i*>(of_rows) + v);
      sink.take(k, v, lanes.template numbers<kSpecial>(word, i, place, v));
    }
  }
};

// i8.
struct ByteLanes {
  static constexpr int64_t kPerWord = 4;
  static constexpr bool kHasSpecial = false;
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
  static constexpr bool kHasSpecial = true;
  static bool may_be_special(const uint32_t* words, int64_t count) {
    const __m256i nan = _mm256_set1_epi8(0x7f);
    __m256i largest = _mm256_setzero_si256();
    for (int64_t i = 0; i < count; i += 8) {
      const __m256i w = _mm256_load_si256(reinterpret_cast<const __m256i*>(words + i));
      largest = _mm256_max_epu8(largest, _mm256_and_si256(w, nan));
    }
    return _mm256_movemask_epi8(_mm256_cmpeq_epi8(largest, nan)) != 0;
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
  static constexpr bool kHasSpecial = false;
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
