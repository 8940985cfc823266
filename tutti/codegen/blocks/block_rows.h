// Dot products of eight rows of blocks with few rows of x: codes are multiplied as they are decoded, in the order of
// their row, and the eight sums of each row are added across at the end of a block. Where x has more rows, unpacked
// panels cost less (block_dots.h). The integers, and so the bits, are the same. Private to the products of
// blocks.
#pragma once

#include <algorithm>

#include "tutti/codegen/blocks/block_dots.h"
#include "tutti/codegen/gemm/lines_ahead.h"

namespace tutti::codegen::blocks {

// Blocks of eight rows of W. One offset moves for all of them: eight pointers that move are put together in a register
// by GCC and taken out of it one by one.
struct RowsOfW {
  const Byte* const* rows;
  int64_t offset = 0;

  const Byte* operator[](int64_t r) const { return rows[r] + offset; }
};

// The words at `offset` of each block.
inline __m128i words_at(const RowsOfW& b, int64_t offset) {
  const auto word = [&](int r) {
    int16_t bits;
    std::memcpy(&bits, b[r] + offset, sizeof(bits));
    return bits;
  };
  return _mm_setr_epi16(word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7));
}
// The same as f16.
inline __m256 halves_at(const RowsOfW& b, int64_t offset) { return _mm256_cvtph_ps(words_at(b, offset)); }

inline const __m256i* at(const void* p) { return static_cast<const __m256i*>(p); }

// Adds block `index` of a leaf, at `b` in each of the rows, to the chains.
template <class F, int kX>
[[gnu::always_inline]] inline void add_small_block(const RowsOfW& b, int64_t index, const RowsOfX (&x)[kX],
                                                   __m256 (&chains)[kX]) {
  const __m256i ones = _mm256_set1_epi16(1);
  __m256i sums[kX][kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) {
    const __m256i codes = F::codes(b[r]);
    for (int i = 0; i < kX; ++i) {
      const __m256i of_x = _mm256_loadu_si256(at(x[i].codes + kSmallBlock * index));
      sums[i][r] = _mm256_madd_epi16(pair_sums<F::kDotsOfSum>(codes, of_x), ones);
    }
  }
  const __m256 d = halves_at(b, 0);
  for (int i = 0; i < kX; ++i) {
    const int32_t codes = x[i].sums[2 * index] + x[i].sums[2 * index + 1];
    __m256i products = simd::sums_across(sums[i]);
    if constexpr (F::kOffset != 0) products = _mm256_sub_epi32(products, _mm256_set1_epi32(F::kOffset * codes));
    const __m256 e = _mm256_set1_ps(x[i].scales[index]);
    chains[i] = _mm256_fmadd_ps(_mm256_mul_ps(d, e), _mm256_cvtepi32_ps(products), chains[i]);
    if constexpr (F::kHasMinimum)
      chains[i] =
          _mm256_fmadd_ps(_mm256_mul_ps(halves_at(b, 2), e), _mm256_set1_ps(static_cast<float>(codes)), chains[i]);
  }
}

template <class F, int kX>
[[gnu::always_inline]] inline void add_super_block(const RowsOfW& b, int64_t index, const RowsOfX (&x)[kX],
                                                   __m256 (&chains)[kX]) {
  __m256i sums[kX][kPanelRows], minima[kX][kPanelRows];
  for (int r = 0; r < kPanelRows; ++r) {
    const __m256i factors = F::factors(b[r]), of_minima = F::minima(b[r]);
    __m256i sum[kX];
    for (int i = 0; i < kX; ++i) {
      sum[i] = _mm256_setzero_si256();
      minima[i][r] = _mm256_madd_epi16(of_minima, _mm256_loadu_si256(at(x[i].sums + 16 * index)));
    }
    for (int chunk = 0; chunk < kSuperBlock / kChunk; ++chunk) {
      const __m256i codes = F::codes(b[r], chunk);
      // Word `chunk` of each half.
      const __m256i factor =
          _mm256_shuffle_epi8(factors, _mm256_set1_epi16(static_cast<int16_t>((2 * chunk + 1) << 8 | 2 * chunk)));
      for (int i = 0; i < kX; ++i) {
        const __m256i of_x = _mm256_loadu_si256(at(x[i].codes + kSuperBlock * index + kChunk * chunk));
        sum[i] = _mm256_add_epi32(sum[i], _mm256_madd_epi16(pair_sums<F::kDotsOfSum>(codes, of_x), factor));
      }
    }
    for (int i = 0; i < kX; ++i) sums[i][r] = sum[i];
  }
  const __m256 d = halves_at(b, F::scale(b[0]) - b[0]);
  for (int i = 0; i < kX; ++i) {
    __m256i products = simd::sums_across(sums[i]);
    const __m256i below = simd::sums_across(minima[i]);
    const __m256 e = _mm256_set1_ps(x[i].scales[index]);
    if constexpr (!F::kHasMinimum) products = _mm256_sub_epi32(products, below);
    chains[i] = _mm256_fmadd_ps(_mm256_mul_ps(d, e), _mm256_cvtepi32_ps(products), chains[i]);
    if constexpr (F::kHasMinimum)
      chains[i] = _mm256_fnmadd_ps(_mm256_mul_ps(halves_at(b, 2), e), _mm256_cvtepi32_ps(below), chains[i]);
  }
}

// Adds blocks `begin` to `end` of a leaf, of which `b` is the first of these.
template <class F, int kX>
[[gnu::noinline]] void add_rows(RowsOfW b, int64_t begin, int64_t end, const RowsOfX (&x)[kX], LinesAhead& next,
                                __m256 (&chains)[kX]) {
  __m256 sums[kX];
  std::copy_n(chains, kX, sums);
  for (int64_t index = begin; index < end; ++index) {
    next.ask(kPanelRows * F::kBytes / 64 + 1);
    if constexpr (is_small<F>) add_small_block<F>(b, index, x, sums);
    else add_super_block<F>(b, index, x, sums);
    b.offset += F::kBytes;
  }
  std::copy_n(sums, kX, chains);
}

}  // namespace tutti::codegen::blocks
