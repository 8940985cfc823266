// CodeRows::pool() with registers of 512 bits.
#pragma once

#include "tutti/ops/tables/code_rows.h"
#include "tutti/ops/tables/wide_sums.h"

namespace tutti::facets {

// Sums of 16 * kVectors columns from `column` on. Returns how many entries are not in the table.
template <int kVectors, int kBits, class Index>
[[TUTTI_WIDE]] int64_t sum_code_columns(const CodeRows<Index>& c, int64_t first, int64_t last, int64_t column,
                                        int64_t ahead, float* out) {
  const FeatureRows<uint8_t, Index> f = c.rows;
  const CodeRowLayout layout = c.layout;
  const int64_t asked = column == 0 ? f.end - ahead : 0;
  WideSums<kVectors> sums;
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
    const __m512 factor = _mm512_set1_ps(f.factors ? f.factors[p] : 1);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      const __m512 codes = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(sixteen_codes<kBits>(from + 2 * j * kBits)));
      // Without weights the factor is 1, which changes no bit.
      sums.total[j] = _mm512_add_ps(sums.total[j], _mm512_mul_ps(_mm512_fmadd_ps(codes, scale, minimum), factor));
    }
  }
  sums.store(out);
  return outside;
}

// As CodeRows::pool(), where has_wide_registers(cpu_target()) and has_wide_blocks(columns).
template <class Index>
int64_t pool_wide(const CodeRows<Index>& c, int64_t first, int64_t last, bool mean, void* out, DType dtype, int64_t at,
                  int64_t ahead) {
  int64_t outside = c.columns > 0 ? 0 : c.rows.each(first, last, false, ahead, [](int64_t, const uint8_t*) {});
  each_wide_block(c.columns, [&]<int kVectors>(int64_t column) {
    float sums[16 * kVectors];
    outside = c.layout.bits == 8 ? sum_code_columns<kVectors, 8>(c, first, last, column, ahead, sums)
                                 : sum_code_columns<kVectors, 4>(c, first, last, column, ahead, sums);
    if (mean && last - first > 1) {
      for (float& sum : sums) sum /= static_cast<float>(last - first);
    }
    store_row(out, dtype, at + column, sums, 16 * kVectors);
  });
  return outside;
}

}  // namespace tutti::facets
