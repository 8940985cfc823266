// exp() in eight lanes, with the bits of the op of that name: the polynomial of llvm/math_exp.cpp as intrinsics, for
// kernels that are compiled ahead of time.
#pragma once

#include <immintrin.h>

namespace tutti::codegen::codes {

// Max error: 0.9 ULP.
inline __m256 exp_lanes(__m256 x) {
  constexpr float kLog2E = 0x1.715476p0F, kLn2High = 0x1.62e43p-1F, kLn2Low = -0x1.05c61p-29F;
  constexpr float kMagic = 0x1.8p23F + 254.0F;  // rounds to an integer and leaves it, with twice the bias, in the bits
  constexpr float kSlope[] = {0x1.fffffcp-2F, 0x1.555488p-3F, 0x1.555886p-5F, 0x1.123faap-7F, 0x1.6a803ep-10F};
  // NaN stays, as the second operand of minimum and maximum.
  const __m256 in_range = _mm256_min_ps(_mm256_set1_ps(89.0F), _mm256_max_ps(_mm256_set1_ps(-104.0F), x));
  const __m256 shifted = _mm256_fmadd_ps(in_range, _mm256_set1_ps(kLog2E), _mm256_set1_ps(kMagic));
  const __m256 n = _mm256_sub_ps(shifted, _mm256_set1_ps(kMagic));
  const __m256 rest =
      _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2Low), _mm256_fmadd_ps(n, _mm256_set1_ps(-kLn2High), in_range));
  __m256 slope = _mm256_set1_ps(kSlope[4]);
  for (int i = 3; i >= 0; --i) slope = _mm256_fmadd_ps(slope, rest, _mm256_set1_ps(kSlope[i]));
  slope = _mm256_fmadd_ps(rest, slope, _mm256_set1_ps(1.0F));
  // 2^n as two factors, because it need not be a normal number.
  const __m256i twice = _mm256_castps_si256(shifted), half = _mm256_srli_epi32(twice, 1);
  const __m256 factor = _mm256_castsi256_ps(_mm256_slli_epi32(half, 23));
  const __m256 other = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_sub_epi32(twice, half), 23));
  return _mm256_mul_ps(_mm256_fmadd_ps(_mm256_mul_ps(rest, factor), slope, factor), other);
}

}  // namespace tutti::codegen::codes
