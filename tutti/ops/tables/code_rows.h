// Rows of a table in 8 or 4 bits (row_quantization.h): where their parts lie, and sums of them.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstring>

#include "tutti/ops/row_quantization.h"
#include "tutti/ops/tables/feature_rows.h"

namespace tutti::facets {

// Where the parts of a row lie.
struct CodeRowLayout {
  CodeRowLayout(RowQuantization format, int64_t columns);

  int bits;
  bool halves;  // scale and minimum are f16
  int64_t codes, scale, nbytes;

  float scale_of(const uint8_t* row) const { return number(row + scale); }
  float minimum_of(const uint8_t* row) const { return number(row + scale + (halves ? 2 : 4)); }
  int code_of(const uint8_t* row, int64_t d) const {
    if (bits == 8) return row[codes + d];
    return row[codes + d / 2] >> (d % 2 == 0 ? 0 : 4) & 15;
  }

 private:
  float number(const uint8_t* from) const {
    if (!halves) {
      float x;
      std::memcpy(&x, from, sizeof(x));
      return x;
    }
    uint16_t x;
    std::memcpy(&x, from, sizeof(x));
    return _cvtsh_ss(x);
  }
};

// Writes a row; false where its numbers are too large, as quantize_rows() says.
bool encode_row(const CodeRowLayout& layout, const float* numbers, int64_t columns, uint8_t* row);

// The 16 codes from `from` on, one a byte.
template <int kBits>
inline __m128i sixteen_codes(const uint8_t* from) {
  if constexpr (kBits == 8) return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i pairs = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
  return _mm_and_si128(_mm_or_si128(pairs, _mm_slli_epi16(pairs, 4)), _mm_set1_epi8(15));
}
// The same as floats.
template <int kBits>
inline void load_codes(const uint8_t* from, __m256 out[2]) {
  const __m128i codes = sixteen_codes<kBits>(from);
  out[0] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(codes));
  out[1] = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_unpackhi_epi64(codes, codes)));
}

// The rows of the entries of one feature; their width is in bytes.
template <class Index>
struct CodeRows {
  FeatureRows<uint8_t, Index> rows;
  CodeRowLayout layout;
  int64_t columns;

  template <int kBits, int64_t kWidth>
  int64_t sum_lanes(int64_t first, int64_t last, int64_t column, int64_t ahead, float* sums) const {
    constexpr int64_t kLanes = kWidth / 8;
    __m256 total[kLanes];
    for (int64_t j = 0; j < kLanes; ++j) total[j] = _mm256_set1_ps(static_cast<float>(kSumIdentity));
    const int64_t outside = rows.each(first, last, column == 0, ahead, [&](int64_t p, const uint8_t* row) {
      const uint8_t* from = row + layout.codes + column * kBits / 8;
      const __m256 scale = _mm256_set1_ps(layout.scale_of(row)), minimum = _mm256_set1_ps(layout.minimum_of(row));
      const __m256 factor = _mm256_set1_ps(rows.factors ? rows.factors[p] : 1);
#pragma GCC unroll 4
      for (int64_t j = 0; j < kLanes; j += 2) {
        __m256 codes[2];
        load_codes<kBits>(from + j * kBits, codes);
        for (int64_t i = 0; i < 2; ++i) {
          // Without weights the factor is 1, which changes no bit.
          const __m256 x = _mm256_mul_ps(_mm256_fmadd_ps(codes[i], scale, minimum), factor);
          total[j + i] = _mm256_add_ps(total[j + i], x);
        }
      }
    });
    for (int64_t j = 0; j < kLanes; ++j) _mm256_storeu_ps(sums + 8 * j, total[j]);
    return outside;
  }
  template <int64_t kWidth>
  int64_t sum_lanes(int64_t first, int64_t last, int64_t column, int64_t ahead, float* sums) const {
    return layout.bits == 8 ? sum_lanes<8, kWidth>(first, last, column, ahead, sums)
                            : sum_lanes<4, kWidth>(first, last, column, ahead, sums);
  }

  int64_t sum_each(int64_t first, int64_t last, int64_t column, int64_t n, int64_t ahead, float* sums) const {
    std::fill_n(sums, n, static_cast<float>(kSumIdentity));
    return rows.each(first, last, column == 0, ahead, [&](int64_t p, const uint8_t* row) {
      const float scale = layout.scale_of(row), minimum = layout.minimum_of(row);
      for (int64_t d = 0; d < n; ++d) {
        const float x = std::fma(static_cast<float>(layout.code_of(row, column + d)), scale, minimum);
        sums[d] += rows.factors ? x * rows.factors[p] : x;
      }
    });
  }

  // As FeatureRows::pool().
  int64_t pool(int64_t first, int64_t last, bool mean, void* out, DType dtype, int64_t at, int64_t ahead) const {
    int64_t outside = columns > 0 ? 0 : rows.each(first, last, false, ahead, [](int64_t, const uint8_t*) {});
    for (int64_t column = 0; column < columns; column += kPooledColumns) {
      float sums[kPooledColumns];
      const int64_t n = std::min(kPooledColumns, columns - column);
      if (n == kPooledColumns) outside = sum_lanes<kPooledColumns>(first, last, column, ahead, sums);
      else if (n == 32) outside = sum_lanes<32>(first, last, column, ahead, sums);
      else if (n == 16) outside = sum_lanes<16>(first, last, column, ahead, sums);
      else outside = sum_each(first, last, column, n, ahead, sums);
      if (mean && last - first > 1) {
        const float length = static_cast<float>(last - first);
        for (int64_t d = 0; d < n; ++d) sums[d] /= length;
      }
      store_row(out, dtype, at + column, sums, n);
    }
    return outside;
  }
};

}  // namespace tutti::facets
