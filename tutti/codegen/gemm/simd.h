// One register of elements for packing and streaming: widening loads, square transposes and sums across lanes.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "tutti/core/dtype.h"

namespace tutti::codegen::simd {

template <class Compute>
struct Block;

// Eight floats.
template <>
struct Block<float> {
  using Vector = __m256;
  static constexpr int kSide = 8;

  static Vector load(const float* p) { return _mm256_loadu_ps(p); }
  static Vector load(const bfloat16* p) {
    const __m128i bits = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
  }
  static Vector load(const float16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
  static void store(float* p, Vector v) { _mm256_storeu_ps(p, v); }
  static Vector splat(float x) { return _mm256_set1_ps(x); }
  static Vector add(Vector a, Vector b) { return _mm256_add_ps(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }

  // Four neighbouring elements; two such halves of a register.
  using Half = __m128;
  static Half load_half(const float* p) { return _mm_loadu_ps(p); }
  static Half load_half(const bfloat16* p) {
    return _mm_castsi128_ps(
        _mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))), 16));
  }
  static Half load_half(const float16* p) { return _mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
  static Vector join(Half low, Half high) { return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1); }
  // Sums of neighbours: of those in a, then of those in b.
  static Vector add_neighbours(Vector a, Vector b) {
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(_mm256_hadd_ps(a, b)), 0xd8));
  }
  // Columns of the two 4 x 4 squares whose rows are halves.
  [[gnu::always_inline]] static void transpose_halves(Vector* r) {
    const Vector a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
    const Vector c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
    r[0] = _mm256_shuffle_ps(a, c, 0x44);
    r[1] = _mm256_shuffle_ps(a, c, 0xee);
    r[2] = _mm256_shuffle_ps(b, d, 0x44);
    r[3] = _mm256_shuffle_ps(b, d, 0xee);
  }

  // Rows become columns: pairs, then quadruples, then halves.
  [[gnu::always_inline]] static void transpose(Vector (&r)[kSide]) {
    Vector t[kSide];
    for (int i = 0; i < 8; i += 2) {
      t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
      t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
      r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
      r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
      r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
      r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; ++i) {
      const Vector low = r[i], high = r[i + 4];
      r[i] = _mm256_permute2f128_ps(low, high, 0x20);
      r[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
  }
};

// Four doubles.
template <>
struct Block<double> {
  using Vector = __m256d;
  static constexpr int kSide = 4;

  static Vector load(const double* p) { return _mm256_loadu_pd(p); }
  static Vector load(const float* p) { return _mm256_cvtps_pd(_mm_loadu_ps(p)); }
  static Vector load(const bfloat16* p) {
    const __m128i bits = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm256_cvtps_pd(_mm_castsi128_ps(_mm_slli_epi32(_mm_cvtepu16_epi32(bits), 16)));
  }
  static Vector load(const float16* p) {
    return _mm256_cvtps_pd(_mm_cvtph_ps(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
  }
  static void store(double* p, Vector v) { _mm256_storeu_pd(p, v); }
  static Vector splat(double x) { return _mm256_set1_pd(x); }
  static Vector add(Vector a, Vector b) { return _mm256_add_pd(a, b); }
  static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_pd(a, b, c); }

  static Vector add_neighbours(Vector a, Vector b) { return _mm256_permute4x64_pd(_mm256_hadd_pd(a, b), 0xd8); }
  using Half = __m128d;
  static Half load_half(const double* p) { return _mm_loadu_pd(p); }
  static Vector join(Half low, Half high) { return _mm256_insertf128_pd(_mm256_castpd128_pd256(low), high, 1); }
  [[gnu::always_inline]] static void transpose_halves(Vector* r) {
    const Vector a = r[0], b = r[1];
    r[0] = _mm256_unpacklo_pd(a, b);
    r[1] = _mm256_unpackhi_pd(a, b);
  }

  [[gnu::always_inline]] static void transpose(Vector (&r)[kSide]) {
    const Vector a = _mm256_unpacklo_pd(r[0], r[1]), b = _mm256_unpackhi_pd(r[0], r[1]);
    const Vector c = _mm256_unpacklo_pd(r[2], r[3]), d = _mm256_unpackhi_pd(r[2], r[3]);
    r[0] = _mm256_permute2f128_pd(a, c, 0x20);
    r[1] = _mm256_permute2f128_pd(b, d, 0x20);
    r[2] = _mm256_permute2f128_pd(a, c, 0x31);
    r[3] = _mm256_permute2f128_pd(b, d, 0x31);
  }
};

// The first `count` < kSide elements, zeros behind them; reads nothing else.
template <class Compute, class T>
typename Block<Compute>::Vector load_part(const T* p, int64_t count) {
  T all[Block<Compute>::kSide] = {};
  std::memcpy(all, p, static_cast<size_t>(count) * sizeof(T));
  return Block<Compute>::load(all);
}

inline float widen(float x) { return x; }
inline double widen(double x) { return x; }
inline float widen(bfloat16 x) { return to_float(x); }
inline float widen(float16 x) { return to_float(x); }

// Ends a row of a tile: what is read through `next` from here on is read after the two sums are made. Else GCC loads
// the operands of all rows first, which are more than there are registers.
template <class T, class Vector>
[[gnu::always_inline]] inline void finish_before(const T*& next, Vector a, Vector b) {
  asm volatile("" : "+r"(next) : "x"(a), "x"(b));
}

// Lane r of the result is the sum of the lanes of rows[r].
inline __m256i sums_across(const __m256i (&rows)[8]) {
  const __m256i low = _mm256_hadd_epi32(_mm256_hadd_epi32(rows[0], rows[1]), _mm256_hadd_epi32(rows[2], rows[3]));
  const __m256i high = _mm256_hadd_epi32(_mm256_hadd_epi32(rows[4], rows[5]), _mm256_hadd_epi32(rows[6], rows[7]));
  return _mm256_add_epi32(_mm256_permute2x128_si256(low, high, 0x20), _mm256_permute2x128_si256(low, high, 0x31));
}

}  // namespace tutti::codegen::simd
