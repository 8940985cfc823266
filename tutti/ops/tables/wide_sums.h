// Sums of columns in registers of 512 bits, which have room for more columns than ColumnSums. Each column is added by
// itself, in the order of the rows, so the bits are the same. Called only where has_wide_registers(cpu_target()).
#pragma once

#include <cstdint>

#include "tutti/codegen/gemm/wide.h"
#include "tutti/core/dtype.h"
#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/prefetch.h"

namespace tutti::facets {

[[gnu::always_inline, TUTTI_WIDE]] inline __m512 wide_row(const float* row) { return _mm512_loadu_ps(row); }
[[gnu::always_inline, TUTTI_WIDE]] inline __m512 wide_row(const float16* row) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
}
[[gnu::always_inline, TUTTI_WIDE]] inline __m512 wide_row(const bfloat16* row) {
  const __m512i words = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(row)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(words, 16));
}

// Sums of 16 * kVectors columns.
template <int kVectors>
struct WideSums {
  [[gnu::always_inline, TUTTI_WIDE]] WideSums() {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) total[j] = _mm512_set1_ps(static_cast<float>(kSumIdentity));
  }
  template <class Value>
  [[gnu::always_inline, TUTTI_WIDE]] void add(const Value* row) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) total[j] = _mm512_add_ps(total[j], wide_row(row + 16 * j));
  }
  [[gnu::always_inline, TUTTI_WIDE]] void divide(float by) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) total[j] = _mm512_div_ps(total[j], _mm512_set1_ps(by));
  }
  [[gnu::always_inline, TUTTI_WIDE]] void store(float* out) const {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) _mm512_storeu_ps(out + 16 * j, total[j]);
  }
  // Past the caches; `out` is aligned to vectors.
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
};

// Rows of so many columns are cut into blocks of 128, 64, 32 and 16; the others are left to ColumnSums.
inline bool has_wide_blocks(int64_t columns) { return columns % 16 == 0; }

// Calls fn.operator()<kVectors>(column) for the blocks of 16 * kVectors columns of a row. Inlined, because many chains
// have one row or two.
template <class Fn>
[[gnu::always_inline]] inline void each_wide_block(int64_t columns, Fn fn) {
  int64_t column = 0;
  for (; column + 128 <= columns; column += 128) fn.template operator()<8>(column);
  if (columns & 64) fn.template operator()<4>(column), column += 64;
  if (columns & 32) fn.template operator()<2>(column), column += 32;
  if (columns & 16) fn.template operator()<1>(column);
}

}  // namespace tutti::facets
