// Products of 8-bit integers as words of 16 bits: codes less their zero points, from -255 to 255, whose pairs VPMADDWD
// multiplies and adds into 32 bits without a loss. So the sums are exact, and no term for zero points is left.
//
// A panel is kWordColumns columns of the right operand, unpacked for all k: words [pairs of k][columns][2]. Private to
// the products of codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/simd.h"
#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::codes {

inline constexpr int64_t kWordColumns = 16;
// Rows of a tile: with more GCC spills the sums.
inline constexpr int64_t kWordRows = 4, kWideWordRows = 12;
inline int64_t word_rows() { return has_wide_registers(cpu_target()) ? kWideWordRows : kWordRows; }

// How bytes become words: a code of i8 is read as one of u8 that is larger by 128.
struct ByteWords {
  __m128i flip;
  __m256i offset;
  uint8_t of_zero;  // the byte whose word is 0, if there is one
  ByteWords(DType codes, int32_t zero_point)
      : flip(_mm_set1_epi8(codes == DType::i8 ? static_cast<char>(0x80) : 0)),
        offset(_mm256_set1_epi16(static_cast<int16_t>(zero_point + (codes == DType::i8 ? 128 : 0)))),
        of_zero(static_cast<uint8_t>(zero_point)) {}
  __m256i operator()(__m128i bytes) const {
    return _mm256_sub_epi16(_mm256_cvtepu8_epi16(_mm_xor_si128(bytes, flip)), offset);
  }
};

inline __m128i load_bytes(const uint8_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
inline void store_words(int16_t* p, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), v); }

// The same for codes of i8 whose zero point is 0.
struct SignedWords {
  static constexpr uint8_t of_zero = 0;
  __m256i operator()(__m128i bytes) const { return _mm256_cvtepi8_epi16(bytes); }
};

// Words of a row, with one more that is 0 where k is odd.
inline int64_t padded(int64_t k) { return k + k % 2; }

// A row of k codes as words, `to` holding padded(k).
template <class Words>
void unpack_row(const uint8_t* row, int64_t k, const Words& words, int16_t* to) {
  int64_t p = 0;
  for (; p + 16 <= k; p += 16) store_words(to + p, words(load_bytes(row + p)));
  if (p == k) return;
  alignas(16) uint8_t rest[16];
  std::fill_n(rest, 16, words.of_zero);
  std::memcpy(rest, row + p, static_cast<size_t>(k - p));
  int16_t last[16];
  store_words(last, words(load_bytes(rest)));
  std::copy_n(last, padded(k) - p, to + p);
}

// Pair i of eight rows that each hold eight pairs of bytes becomes register i.
inline void transpose_pairs(__m128i (&r)[8]) {
  __m128i t[8];
  for (int i = 0; i < 8; i += 2) {
    t[i] = _mm_unpacklo_epi16(r[i], r[i + 1]);
    t[i + 1] = _mm_unpackhi_epi16(r[i], r[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm_unpacklo_epi32(t[i], t[i + 2]);
    r[i + 1] = _mm_unpackhi_epi32(t[i], t[i + 2]);
    r[i + 2] = _mm_unpacklo_epi32(t[i + 1], t[i + 3]);
    r[i + 3] = _mm_unpackhi_epi32(t[i + 1], t[i + 3]);
  }
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm_unpacklo_epi64(r[i], r[i + 4]);
    t[2 * i + 1] = _mm_unpackhi_epi64(r[i], r[i + 4]);
  }
  std::copy_n(t, 8, r);
}

// A panel of columns that are rows of k codes, `stride` bytes apart. Columns from `columns` on are 0.
template <class Words>
void pack_rows(const uint8_t* first, int64_t stride, int64_t columns, int64_t k, const Words& words, int16_t* panel) {
  for (int64_t half = 0; half < kWordColumns; half += 8) {
    for (int64_t p = 0; p < k; p += 16) {
      __m128i r[8];
      for (int64_t j = 0; j < 8; ++j) {
        if (half + j < columns && p + 16 <= k) {
          r[j] = load_bytes(first + (half + j) * stride + p);
          continue;
        }
        alignas(16) uint8_t rest[16];
        std::fill_n(rest, 16, words.of_zero);
        if (half + j < columns) std::memcpy(rest, first + (half + j) * stride + p, static_cast<size_t>(k - p));
        r[j] = load_bytes(rest);
      }
      transpose_pairs(r);
      const int64_t pairs = std::min<int64_t>(8, (k - p + 1) / 2);
      for (int64_t i = 0; i < pairs; ++i) store_words(panel + ((p / 2 + i) * kWordColumns + half) * 2, words(r[i]));
    }
  }
}

// The same where k runs over rows of codes, `stride` bytes apart, whose neighbours are the columns.
inline void pack_columns(const uint8_t* first, int64_t stride, int64_t columns, int64_t k, const ByteWords& words,
                         int16_t* panel) {
  const auto load = [&](int64_t p) {
    if (p < k && columns >= kWordColumns) return load_bytes(first + p * stride);
    alignas(16) uint8_t rest[16];
    std::fill_n(rest, 16, words.of_zero);
    if (p < k) std::memcpy(rest, first + p * stride, static_cast<size_t>(columns));
    return load_bytes(rest);
  };
  for (int64_t p = 0; p < k; p += 2) {
    const __m128i even = load(p), odd = load(p + 1);
    store_words(panel + p * kWordColumns, words(_mm_unpacklo_epi8(even, odd)));
    store_words(panel + (p + 1) * kWordColumns, words(_mm_unpackhi_epi8(even, odd)));
  }
}

// sums[row][column] of kRows rows, in registers that hold a pair of all columns.
template <int kRows>
[[TUTTI_WIDE]] void multiply_wide_tile(const int16_t* rows, int64_t stride, const int16_t* panel, int64_t pairs,
                                       int32_t (&to)[kRows][kWordColumns]) {
  __m512i sums[kRows];
  for (int i = 0; i < kRows; ++i) sums[i] = _mm512_setzero_si512();
  for (int64_t p = 0; p < pairs; ++p) {
    const __m512i of_columns = _mm512_loadu_si512(panel + p * kWordColumns * 2);
    for (int i = 0; i < kRows; ++i) {
      int32_t pair;
      std::memcpy(&pair, rows + i * stride + 2 * p, sizeof(pair));
      sums[i] = _mm512_add_epi32(sums[i], _mm512_madd_epi16(_mm512_set1_epi32(pair), of_columns));
    }
  }
  for (int i = 0; i < kRows; ++i) _mm512_storeu_si512(to[i], sums[i]);
}

// multiply_panel() with registers of 512 bits, of which more rows find room.
template <int kRows = kWideWordRows, class Finish>
void multiply_wide_panel(const int16_t* rows, int64_t stride, int64_t count, const int16_t* panel, int64_t pairs,
                         Finish finish) {
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) {
    alignas(64) int32_t sums[kRows][kWordColumns];
    multiply_wide_tile<kRows>(rows + row * stride, stride, panel, pairs, sums);
    for (int i = 0; i < kRows; ++i) {
      const auto* of_row = reinterpret_cast<const __m256i*>(sums[i]);
      finish(row + i, _mm256_load_si256(of_row), _mm256_load_si256(of_row + 1));
    }
  }
  if constexpr (kRows > 1) {
    constexpr int kFewer = kRows > kWordRows ? kWordRows : kRows - 1;
    if (row < count)
      multiply_wide_panel<kFewer>(rows + row * stride, stride, count - row, panel, pairs,
                                  [&](int64_t r, __m256i left, __m256i right) { finish(row + r, left, right); });
  }
}

// Calls finish(row, sums of its first eight columns, of the others) for each of the rows of words, `stride` words
// apart.
template <int kRows = kWordRows, class Finish>
void multiply_panel(const int16_t* rows, int64_t stride, int64_t count, const int16_t* panel, int64_t pairs,
                    Finish finish) {
  if (kRows == kWordRows && has_wide_registers(cpu_target()))
    return multiply_wide_panel(rows, stride, count, panel, pairs, finish);
  int64_t row = 0;
  for (; row + kRows <= count; row += kRows) {
    // Nothing takes the address of the sums, so that they stay in registers.
    __m256i sums[kRows][2];
    for (int i = 0; i < kRows; ++i) sums[i][0] = sums[i][1] = _mm256_setzero_si256();
    const int16_t* first = rows + row * stride;
    for (int64_t p = 0; p < pairs; ++p) {
      const auto* at = reinterpret_cast<const __m256i*>(panel + p * kWordColumns * 2);
      const __m256i left = _mm256_loadu_si256(at), right = _mm256_loadu_si256(at + 1);
      for (int i = 0; i < kRows; ++i) {
        int32_t pair;
        std::memcpy(&pair, first + i * stride + 2 * p, sizeof(pair));
        const __m256i of_row = _mm256_set1_epi32(pair);
        sums[i][0] = _mm256_add_epi32(sums[i][0], _mm256_madd_epi16(of_row, left));
        sums[i][1] = _mm256_add_epi32(sums[i][1], _mm256_madd_epi16(of_row, right));
        simd::finish_before(first, sums[i][0], sums[i][1]);
      }
    }
    for (int i = 0; i < kRows; ++i) finish(row + i, sums[i][0], sums[i][1]);
  }
  if constexpr (kRows > 1) {
    if (row < count)
      multiply_panel<kRows - 1>(rows + row * stride, stride, count - row, panel, pairs,
                                [&](int64_t r, __m256i left, __m256i right) { finish(row + r, left, right); });
  }
}

// Dot products of up to eight rows of codes, read one after another as they lie in memory, with few rows of words:
// nothing is unpacked. sums[i] has those of row i of x, one lane for each row of codes.
template <int kX, class Words>
[[gnu::always_inline]] inline void dot_rows(const uint8_t* first, int64_t stride, int64_t count, int64_t k,
                                            const Words& words, const int16_t* x, int64_t x_stride,
                                            __m256i (&sums)[kX]) {
  __m256i each[kX][8] = {};
  for (int64_t r = 0; r < count; ++r) {
    const uint8_t* row = first + r * stride;
    int64_t p = 0;
    for (; p + 16 <= k; p += 16) {
      const __m256i of_row = words(load_bytes(row + p));
      for (int i = 0; i < kX; ++i) {
        const auto* at = reinterpret_cast<const __m256i*>(x + i * x_stride + p);
        each[i][r] = _mm256_add_epi32(each[i][r], _mm256_madd_epi16(of_row, _mm256_loadu_si256(at)));
      }
    }
    if (p == k) continue;
    int16_t rest[kX][16] = {}, last[16] = {};
    unpack_row(row + p, k - p, words, last);
    for (int i = 0; i < kX; ++i) {
      std::copy_n(x + i * x_stride + p, k - p, rest[i]);
      each[i][r] = _mm256_add_epi32(each[i][r],
                                    _mm256_madd_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(last)),
                                                      _mm256_loadu_si256(reinterpret_cast<const __m256i*>(rest[i]))));
    }
  }
  for (int i = 0; i < kX; ++i) sums[i] = simd::sums_across(each[i]);
}

}  // namespace tutti::codegen::codes
