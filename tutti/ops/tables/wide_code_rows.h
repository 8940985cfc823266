// CodeRows::pool() with registers of 512 bits.
#pragma once

#include "tutti/ops/tables/code_rows.h"
#include "tutti/ops/tables/wide_sums.h"

namespace tutti::facets {

// Reads the first `n` of sixteen codes as floats; the others are 0.
template <int kBits>
[[gnu::always_inline, TUTTI_WIDE]] inline __m512 wide_codes(const uint8_t* from, int64_t n) {
  const __mmask16 lanes = static_cast<__mmask16>(0xffff >> (16 - (kBits == 8 ? n : (n + 1) / 2)));
  __m128i codes = _mm_maskz_loadu_epi8(lanes, from);
  if constexpr (kBits == 4) {
    const __m128i pairs = _mm_cvtepu8_epi16(codes);
    codes = _mm_and_si128(_mm_or_si128(pairs, _mm_slli_epi16(pairs, 4)), _mm_set1_epi8(15));
  }
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(codes));
}

// Sums of `n` columns from `column` on, in kVectors registers. Returns how many entries are not in the table.
template <int kVectors, int kBits, bool kWeighted, class Index>
[[TUTTI_WIDE]] int64_t sum_code_columns(const CodeRows<Index>& c, int64_t first, int64_t last, int64_t column,
                                        int64_t n, int64_t ahead, float* out) {
  const FeatureRows<uint8_t, Index> f = c.rows;
  const CodeRowLayout layout = c.layout;
  const int64_t asked = column == 0 ? f.end - ahead : 0, some = n - 16 * (kVectors - 1);
  WideSums<kVectors> sums(n);
  int64_t outside = 0;
  for (int64_t p = first; p < last; ++p) {
    if (p < asked) f.ask_for(p + ahead);
    const int64_t number = static_cast<int64_t>(f.indices[p]);
    if (static_cast<uint64_t>(number) >= static_cast<uint64_t>(f.rows)) [[unlikely]] {
      ++outside;
      continue;
    }
    const uint8_t* const row = f.table + number * f.row_stride;
    const uint8_t* const from = row + layout.codes + column * kBits / 8;
    const __m512 scale = _mm512_set1_ps(layout.scale_of(row)), minimum = _mm512_set1_ps(layout.minimum_of(row));
    __m512 factor;
    if constexpr (kWeighted) factor = _mm512_set1_ps(f.factors[p]);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const __m512 codes = wide_codes<kBits>(from + 2 * j * kBits, j + 1 < kVectors ? 16 : some);
      __m512 x = _mm512_fmadd_ps(codes, scale, minimum);
      if constexpr (kWeighted) x = _mm512_mul_ps(x, factor);
      sums.total[j] = _mm512_add_ps(sums.total[j], x);
    }
  }
  sums.store(out);
  return outside;
}

// As CodeRows::pool(), where has_wide_registers(cpu_target()).
template <class Index>
int64_t pool_wide(const CodeRows<Index>& c, int64_t first, int64_t last, bool mean, void* out, DType dtype, int64_t at,
                  int64_t ahead) {
  int64_t outside = c.columns > 0 ? 0 : c.rows.each(first, last, false, ahead, [](int64_t, const uint8_t*) {});
  for (int64_t column = 0; column < c.columns; column += kWideColumns) {
    float sums[kWideColumns];
    const int64_t n = std::min(kWideColumns, c.columns - column);
    outside = with_vectors(n, [&]<int kVectors>() {
      const auto sum = [&]<int kBits>() {
        return c.rows.factors ? sum_code_columns<kVectors, kBits, true>(c, first, last, column, n, ahead, sums)
                              : sum_code_columns<kVectors, kBits, false>(c, first, last, column, n, ahead, sums);
      };
      return c.layout.bits == 8 ? sum.template operator()<8>() : sum.template operator()<4>();
    });
    if (mean && last - first > 1) {
      const float length = static_cast<float>(last - first);
      for (int64_t d = 0; d < n; ++d) sums[d] /= length;
    }
    store_row(out, dtype, at + column, sums, n);
  }
  return outside;
}

}  // namespace tutti::facets
