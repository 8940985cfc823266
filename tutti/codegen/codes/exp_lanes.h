// exp() in eight and in 16 lanes, with the bits of the op of that name: the polynomial of llvm/math_exp.cpp as
// intrinsics, for kernels that are compiled ahead of time.
#pragma once

#include <immintrin.h>

#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::codes {

inline constexpr float kExpLog2E = 0x1.715476p0F, kExpLn2High = 0x1.62e43p-1F, kExpLn2Low = -0x1.05c61p-29F;
// Rounds to an integer and leaves it, with twice the bias, in the bits.
inline constexpr float kExpMagic = 0x1.8p23F + 254.0F;
inline constexpr float kExpSlope[] = {0x1.fffffcp-2F, 0x1.555488p-3F, 0x1.555886p-5F, 0x1.123faap-7F, 0x1.6a803ep-10F};

// Max error: 0.9 ULP.
inline __m256 exp_lanes(__m256 x) {
  // NaN stays, as the second operand of minimum and maximum.
  const __m256 in_range = _mm256_min_ps(_mm256_set1_ps(89.0F), _mm256_max_ps(_mm256_set1_ps(-104.0F), x));
  const __m256 shifted = _mm256_fmadd_ps(in_range, _mm256_set1_ps(kExpLog2E), _mm256_set1_ps(kExpMagic));
  const __m256 n = _mm256_sub_ps(shifted, _mm256_set1_ps(kExpMagic));
  const __m256 rest =
      _mm256_fmadd_ps(n, _mm256_set1_ps(-kExpLn2Low), _mm256_fmadd_ps(n, _mm256_set1_ps(-kExpLn2High), in_range));
  __m256 slope = _mm256_set1_ps(kExpSlope[4]);
  for (int i = 3; i >= 0; --i) slope = _mm256_fmadd_ps(slope, rest, _mm256_set1_ps(kExpSlope[i]));
  slope = _mm256_fmadd_ps(rest, slope, _mm256_set1_ps(1.0F));
  // 2^n as two factors, because it need not be a normal number.
  const __m256i twice = _mm256_castps_si256(shifted), half = _mm256_srli_epi32(twice, 1);
  const __m256 factor = _mm256_castsi256_ps(_mm256_slli_epi32(half, 23));
  const __m256 other = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(twice, half), 23));
  return _mm256_mul_ps(_mm256_fmadd_ps(_mm256_mul_ps(rest, factor), slope, factor), other);
}

[[gnu::always_inline, TUTTI_WIDE]] inline __m512 exp_lanes(__m512 x) {
  const __m512 in_range = _mm512_min_ps(_mm512_set1_ps(89.0F), _mm512_max_ps(_mm512_set1_ps(-104.0F), x));
  const __m512 shifted = _mm512_fmadd_ps(in_range, _mm512_set1_ps(kExpLog2E), _mm512_set1_ps(kExpMagic));
  const __m512 n = _mm512_sub_ps(shifted, _mm512_set1_ps(kExpMagic));
  const __m512 rest =
      _mm512_fmadd_ps(n, _mm512_set1_ps(-kExpLn2Low), _mm512_fmadd_ps(n, _mm512_set1_ps(-kExpLn2High), in_range));
  __m512 slope = _mm512_set1_ps(kExpSlope[4]);
  for (int i = 3; i >= 0; --i) slope = _mm512_fmadd_ps(slope, rest, _mm512_set1_ps(kExpSlope[i]));
  slope = _mm512_fmadd_ps(rest, slope, _mm512_set1_ps(1.0F));
  return _mm512_scalef_ps(_mm512_fmadd_ps(rest, slope, _mm512_set1_ps(1.0F)), n);
}

}  // namespace tutti::codegen::codes
