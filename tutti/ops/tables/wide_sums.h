// Sums of columns in registers of 512 bits, which have room for more columns than ColumnSums and a mask for widths that
// are no multiple of 16. Each column is added by itself, in the order of the rows, so the bits are the same. Called
// only where has_wide_registers(cpu_target()).
#pragma once

#include <cstdint>

#include "tutti/codegen/gemm/wide.h"
#include "tutti/core/dtype.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/prefetch.h"

namespace tutti::facets {

inline constexpr int64_t kWideColumns = 128;  // columns whose sums stay in registers

// Reads those of sixteen elements of a row that are in `lanes`.
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

// Sums of `columns` columns, more than 16 * (kVectors - 1) and at most 16 * kVectors.
template <int kVectors>
struct WideSums {
  [[gnu::always_inline, TUTTI_WIDE]] explicit WideSums(int64_t columns)
      : some(static_cast<__mmask16>(0xffff >> (16 * kVectors - columns))) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) total[j] = _mm512_set1_ps(static_cast<float>(kSumIdentity));
  }
  [[gnu::always_inline, TUTTI_WIDE]] __mmask16 lanes(int j) const {
    return j + 1 < kVectors ? __mmask16{0xffff} : some;
  }
  template <class Value>
  [[gnu::always_inline, TUTTI_WIDE]] void add(const Value* row) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) total[j] = _mm512_add_ps(total[j], wide_row(row + 16 * j, lanes(j)));
  }
  template <class Value>
  [[gnu::always_inline, TUTTI_WIDE]] void add(const Value* row, float factor) {
    const __m512 by = _mm512_set1_ps(factor);
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j)
      total[j] = _mm512_add_ps(total[j], _mm512_mul_ps(wide_row(row + 16 * j, lanes(j)), by));
  }
  [[gnu::always_inline, TUTTI_WIDE]] void divide(float by) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) total[j] = _mm512_div_ps(total[j], _mm512_set1_ps(by));
  }
  [[gnu::always_inline, TUTTI_WIDE]] void store(float* out) const {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) _mm512_mask_storeu_ps(out + 16 * j, lanes(j), total[j]);
  }
  // Past the caches; `out` is aligned to vectors, and all lanes are taken.
  [[gnu::always_inline, TUTTI_WIDE]] void stream(float* out) const {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) _mm512_stream_ps(out + 16 * j, total[j]);
  }
  // Asks for the columns of a row of values of `kBytes`, which may be anywhere.
  template <int kBytes>
  [[gnu::always_inline]] static void ask_for(uintptr_t row) {
#pragma GCC unroll 8
    for (int line = 0; 64 * line < 16 * kVectors * kBytes; ++line)
      prefetch_line(row + 64 * static_cast<uintptr_t>(line));
  }

  __m512 total[kVectors];
  __mmask16 some;  // lanes of the last register
};

// Calls fn.operator()<kVectors>() for `columns` columns, at least one and at most kWideColumns.
template <class Fn>
auto with_vectors(int64_t columns, Fn fn) {
  switch ((columns + 15) / 16) {
    case 1:
      return fn.template operator()<1>();
    case 2:
      return fn.template operator()<2>();
    case 3:
      return fn.template operator()<3>();
    case 4:
      return fn.template operator()<4>();
    case 5:
      return fn.template operator()<5>();
    case 6:
      return fn.template operator()<6>();
    case 7:
      return fn.template operator()<7>();
    default:
      return fn.template operator()<8>();
  }
}

}  // namespace tutti::facets
