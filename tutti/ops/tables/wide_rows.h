// FeatureRows::pool() with registers of 512 bits, which have room for more columns and a mask for widths that are no
// multiple of 16. The sums are the same: each column is added by itself, in the order of the entries.
#pragma once

#include "tutti/codegen/gemm/wide.h"
#include "tutti/ops/tables/feature_rows.h"

namespace tutti::facets {

inline constexpr int64_t kWideColumns = 128;  // columns whose sums stay in registers

// Those of sixteen elements of a row that are in `lanes`.
[[gnu::always_inline, TUTTI_WIDE]] inline __m512 wide_row(const float* row, __mmask16 lanes) {
  return _mm512_maskz_loadu_ps(lanes, row);
}
[[gnu::always_inline, TUTTI_WIDE]] inline __m512 wide_row(const float16* row, __mmask16 lanes) {
  return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, row));
}
[[gnu::always_inline, TUTTI_WIDE]] inline __m512 wide_row(const bfloat16* row, __mmask16 lanes) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, row));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

// `n` columns from `column` on, in `kVectors` registers. Returns how many entries are not in the table.
template <int kVectors, bool kWeighted, class Value, class Index>
[[TUTTI_WIDE]] int64_t pool_wide(const FeatureRows<Value, Index>& f, int64_t first, int64_t last, int64_t column,
                                 int64_t n, bool mean, float* out, bool streams, int64_t ahead) {
  const __mmask16 every = 0xffff, some = static_cast<__mmask16>(every >> (16 * kVectors - n));
  // What does not change stays in registers: asking for a line counts as a write to memory.
  const Index* const indices = f.indices;
  const uint64_t rows = static_cast<uint64_t>(f.rows), pitch = static_cast<uint64_t>(f.row_stride) * sizeof(Value);
  const uintptr_t table = reinterpret_cast<uintptr_t>(f.table + column);
  constexpr int kLines = (kVectors * static_cast<int>(sizeof(Value)) + 3) / 4;
  const int64_t asked = f.end - ahead;
  __m512 total[kVectors];
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) total[j] = _mm512_set1_ps(static_cast<float>(kSumIdentity));
  int64_t outside = 0;
  for (int64_t p = first; p < last; ++p) {
    if (p < asked) {
      const uintptr_t next = table + static_cast<uint64_t>(static_cast<int64_t>(indices[p + ahead])) * pitch;
#pragma GCC unroll 8
      for (int line = 0; line < kLines; ++line) prefetch_line(next + 64 * static_cast<uintptr_t>(line));
    }
    const uint64_t row = static_cast<uint64_t>(static_cast<int64_t>(indices[p]));
    if (row >= rows) [[unlikely]] {
      ++outside;
      continue;
    }
    const Value* const from = reinterpret_cast<const Value*>(table + row * pitch);
    __m512 by;
    if constexpr (kWeighted) by = _mm512_set1_ps(f.factors[p]);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      __m512 x = wide_row(from + 16 * j, j + 1 < kVectors ? every : some);
      if constexpr (kWeighted) x = _mm512_mul_ps(x, by);
      total[j] = _mm512_add_ps(total[j], x);
    }
  }
  const __m512 length = _mm512_set1_ps(mean && last - first > 1 ? static_cast<float>(last - first) : 1.0F);
#pragma GCC unroll 8
  for (int j = 0; j < kVectors; ++j) {
    if (mean) total[j] = _mm512_div_ps(total[j], length);
    if (streams) _mm512_stream_ps(out + 16 * j, total[j]);
    else _mm512_mask_storeu_ps(out + 16 * j, j + 1 < kVectors ? every : some, total[j]);
  }
  return outside;
}

template <bool kWeighted, class Value, class Index, class... Rest>
int64_t pool_wide(const FeatureRows<Value, Index>& f, int64_t first, int64_t last, int64_t column, int64_t n,
                  Rest... rest) {
  switch ((n + 15) / 16) {
    case 1:
      return pool_wide<1, kWeighted>(f, first, last, column, n, rest...);
    case 2:
      return pool_wide<2, kWeighted>(f, first, last, column, n, rest...);
    case 3:
      return pool_wide<3, kWeighted>(f, first, last, column, n, rest...);
    case 4:
      return pool_wide<4, kWeighted>(f, first, last, column, n, rest...);
    case 5:
      return pool_wide<5, kWeighted>(f, first, last, column, n, rest...);
    case 6:
      return pool_wide<6, kWeighted>(f, first, last, column, n, rest...);
    case 7:
      return pool_wide<7, kWeighted>(f, first, last, column, n, rest...);
    default:
      return pool_wide<8, kWeighted>(f, first, last, column, n, rest...);
  }
}

// As FeatureRows::pool(), where has_wide_registers(cpu_target()).
template <class Value, class Index>
int64_t pool_wide(const FeatureRows<Value, Index>& f, int64_t first, int64_t last, bool mean, void* out, DType dtype,
                  int64_t at, bool streams, int64_t ahead) {
  int64_t outside = f.width > 0 ? 0 : f.each(first, last, false, ahead, [](int64_t, const Value*) {});
  for (int64_t column = 0; column < f.width; column += kWideColumns) {
    const int64_t n = std::min(kWideColumns, f.width - column);
    float sums[kWideColumns];
    float* const to = dtype == DType::f32 ? static_cast<float*>(out) + at + column : sums;
    outside = f.factors ? pool_wide<true>(f, first, last, column, n, mean, to, streams, ahead)
                        : pool_wide<false>(f, first, last, column, n, mean, to, streams, ahead);
    if (to == sums) store_row(out, dtype, at + column, sums, n);
  }
  return outside;
}

}  // namespace tutti::facets
