// Codes of eight bits: i8 and u8, whose numbers are (code - zero point) * scale, and f8e4m3fn, whose numbers are the
// decoded code times the scale.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tutti/core/dtype.h"

namespace tutti::codegen {

inline constexpr float kLargestE4m3 = 448.0F;

constexpr bool is_code(DType dtype) { return dtype == DType::i8 || dtype == DType::u8 || dtype == DType::f8e4m3fn; }
// The largest magnitude of the codes of numbers that are rounded symmetrically: -128 has no counterpart.
constexpr float largest_code(DType codes) { return codes == DType::f8e4m3fn ? kLargestE4m3 : 127.0F; }

// The integer whose product with the scale stands for x * scale: x, here divided by it, rounded to nearest even, moved
// by the zero point, and clamped. NaN becomes the lowest code.
inline int32_t integer_code(DType codes, float x_over_scale, int32_t zero_point) {
  const float lowest = codes == DType::u8 ? 0.0F : -128.0F, highest = codes == DType::u8 ? 255.0F : 127.0F;
  const float moved = std::nearbyint(x_over_scale) + static_cast<float>(zero_point);
  return moved > lowest ? static_cast<int32_t>(moved < highest ? moved : highest) : static_cast<int32_t>(lowest);
}
// Saturates, as the format has no infinity; NaN stays.
inline float8_e4m3fn e4m3_code(float x_over_scale) {
  const float x = x_over_scale;
  return to_float8_e4m3fn(x > kLargestE4m3 ? kLargestE4m3 : x < -kLargestE4m3 ? -kLargestE4m3 : x);
}
inline void write_code(DType codes, float x_over_scale, int32_t zero_point, void* to) {
  const uint8_t code = codes == DType::f8e4m3fn ? e4m3_code(x_over_scale).bits
                                                : static_cast<uint8_t>(integer_code(codes, x_over_scale, zero_point));
  std::memcpy(to, &code, sizeof(code));
}

// How numbers of largest magnitude `largest` become codes: d is the scale, and a code is x * inverse, rounded. A row
// whose d would not be a normal number is zero with d = 0; one with a number that is not finite has d = NaN.
struct CodeScale {
  float d = 0, inverse = 0;
};
inline CodeScale code_scale(float largest, DType codes) {
  if (!std::isfinite(largest)) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const float d = largest / largest_code(codes);
  return std::isnormal(d) ? CodeScale{d, 1.0F / d} : CodeScale{};
}

namespace codes {

// integer_code() in eight lanes, as numbers.
inline __m256 integer_codes(DType codes, __m256 x_over_scale, int32_t zero_point) {
  const float lowest = codes == DType::u8 ? 0.0F : -128.0F;
  const __m256 whole = _mm256_round_ps(x_over_scale, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  const __m256 moved = _mm256_add_ps(whole, _mm256_set1_ps(static_cast<float>(zero_point)));
  // NaN gives the second operand of the maximum.
  return _mm256_min_ps(_mm256_max_ps(moved, _mm256_set1_ps(lowest)), _mm256_set1_ps(lowest + 255.0F));
}

// Eight codes of f8e4m3fn as numbers. As an f16 the bits of a code, moved to its place, are 2^-8 of the number.
inline __m256 e4m3_values(__m128i bytes) {
  const __m128i bits = _mm_cvtepu8_epi16(bytes);
  const __m128i magnitude = _mm_and_si128(bits, _mm_set1_epi16(0x7f));
  const __m128i sign = _mm_slli_epi16(_mm_and_si128(bits, _mm_set1_epi16(0x80)), 8);
  const __m128i is_nan = _mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f));
  const __m128i half = _mm_or_si128(_mm_slli_epi16(magnitude, 7), _mm_and_si128(is_nan, _mm_set1_epi16(0x7c00)));
  return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(half, sign)), _mm256_set1_ps(256.0F));
}
// Eight numbers rounded to those of f8e4m3fn as e4m3_code() does: 2^(e + 20) * 1.5, added to a number of exponent e and
// taken away again, leaves three bits behind its first; below 2^-6 the steps stay as they are there.
inline __m256 e4m3_rounded(__m256 x) {
  const __m256 sign = _mm256_and_ps(x, _mm256_set1_ps(-0.0F)), magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), x);
  const __m256 within = _mm256_min_ps(_mm256_set1_ps(kLargestE4m3), magnitude);  // NaN stays, as the second operand
  const __m256i exponent = _mm256_max_epi32(
      _mm256_and_si256(_mm256_castps_si256(within), _mm256_set1_epi32(0x7f800000)), _mm256_set1_epi32((127 - 6) << 23));
  const __m256 magic = _mm256_castsi256_ps(_mm256_add_epi32(exponent, _mm256_set1_epi32((20 << 23) | 0x400000)));
  const __m256 rounded = _mm256_sub_ps(_mm256_add_ps(within, magic), magic);
  const __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
  return _mm256_or_ps(sign, _mm256_blendv_ps(rounded, x, is_nan));
}
// Codes of eight numbers whose magnitudes are below 464, so that they round to 448 at most.
inline __m256i e4m3_codes(__m256 v) {
  const __m256 magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0F), v);
  const __m256i bits = _mm256_castps_si256(magnitude), one = _mm256_set1_epi32(1);
  // Three bits of mantissa stay; exponents are biased by 7 instead of 127.
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 20), one);
  const __m256i rounded =
      _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7ffff)), odd), 20);
  const __m256i normal = _mm256_sub_epi32(rounded, _mm256_set1_epi32((127 - 7) << 3));
  // Below 2^-6 a code counts steps of 2^-9; eight of them are the first normal number.
  const __m256i small = _mm256_cvtps_epi32(_mm256_mul_ps(magnitude, _mm256_set1_ps(0x1p9F)));
  const __m256 is_small = _mm256_cmp_ps(magnitude, _mm256_set1_ps(0x1p-6F), _CMP_LT_OQ);
  const __m256i code = _mm256_blendv_epi8(normal, small, _mm256_castps_si256(is_small));
  const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(_mm256_castps_si256(v), 31), 7);
  return _mm256_or_si256(code, sign);
}
// The low byte of each lane.
inline uint64_t low_bytes(__m256i v) {
  const __m256i words =
      _mm256_shuffle_epi8(v, _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 4, 8, 12,
                                              -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1));
  const auto low = static_cast<uint32_t>(_mm256_extract_epi32(words, 0)),
             high = static_cast<uint32_t>(_mm256_extract_epi32(words, 4));
  return uint64_t{high} << 32 | low;
}
// The first `count` of eight codes; zeros stand in the place of the others.
inline __m256 e4m3_at(const uint8_t* p, int64_t count) {
  if (count == 8) return e4m3_values(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  uint64_t rest = 0;
  std::memcpy(&rest, p, static_cast<size_t>(count));
  return e4m3_values(_mm_cvtsi64_si128(static_cast<long long>(rest)));
}
inline void e4m3_row(const uint8_t* codes, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(to + i, e4m3_at(codes + i, 8));
  if (i == count) return;
  float last[8];
  _mm256_storeu_ps(last, e4m3_at(codes + i, count - i));
  std::copy_n(last, count - i, to + i);
}

}  // namespace codes
}  // namespace tutti::codegen
