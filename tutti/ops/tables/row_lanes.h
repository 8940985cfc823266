// Rows of tables as floats: eight lanes at a time for f16, whose conversion is an instruction.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "tutti/core/dtype.h"
#include "tutti/ops/engine/index_loops.h"

namespace tutti::facets {

template <class Value>
using Wide = std::conditional_t<std::is_same_v<Value, double>, double, float>;

// Sums of kWidth columns, a multiple of 8 and at most 64. Those of floats stay in registers, as compilers would not
// have it where the loop over the rows has branches.
template <class Sum, int64_t kWidth>
struct ColumnSums {
  void clear() {
    for (int64_t d = 0; d < kWidth; ++d) total[d] = static_cast<Sum>(kSumIdentity);
  }
  void add(const Sum* row) {
    for (int64_t d = 0; d < kWidth; ++d) total[d] += row[d];
  }
  void add(const Sum* row, Sum factor) {
    for (int64_t d = 0; d < kWidth; ++d) total[d] += row[d] * factor;
  }
  void store(Sum* out) const {
    for (int64_t d = 0; d < kWidth; ++d) out[d] = total[d];
  }
  Sum total[kWidth];
};
template <int64_t kWidth>
struct ColumnSums<float, kWidth> {
  static constexpr int64_t kLanes = kWidth / 8;
  void clear() {
#pragma GCC unroll 8
    for (int64_t j = 0; j < kLanes; ++j) total[j] = _mm256_set1_ps(static_cast<float>(kSumIdentity));
  }
  void add(const float* row) {
#pragma GCC unroll 8
    for (int64_t j = 0; j < kLanes; ++j) total[j] = _mm256_add_ps(total[j], _mm256_loadu_ps(row + 8 * j));
  }
  void add(const float* row, float factor) {
    const __m256 by = _mm256_set1_ps(factor);
#pragma GCC unroll 8
    for (int64_t j = 0; j < kLanes; ++j)
      total[j] = _mm256_add_ps(total[j], _mm256_mul_ps(_mm256_loadu_ps(row + 8 * j), by));
  }
  void store(float* out) const {
#pragma GCC unroll 8
    for (int64_t j = 0; j < kLanes; ++j) _mm256_storeu_ps(out + 8 * j, total[j]);
  }
  // Past the caches; `out` is aligned to vectors.
  void stream(float* out) const {
#pragma GCC unroll 8
    for (int64_t j = 0; j < kLanes; ++j) _mm256_stream_ps(out + 8 * j, total[j]);
  }
  void divide(float by) {
    const __m256 all = _mm256_set1_ps(by);
#pragma GCC unroll 8
    for (int64_t j = 0; j < kLanes; ++j) total[j] = _mm256_div_ps(total[j], all);
  }
  __m256 total[kLanes];
};

// The sum of the squares of `n` numbers, 16 times a power of two, in the tree of reductions with leaves of 16 elements.
inline float sum_of_squares(const float* x, int64_t n) {
  if (n > 16) {
    const float first = sum_of_squares(x, n / 2);
    return first + sum_of_squares(x + n / 2, n / 2);
  }
  const __m256 low = _mm256_loadu_ps(x), high = _mm256_loadu_ps(x + 8);
  const __m256 eight = _mm256_add_ps(_mm256_mul_ps(low, low), _mm256_mul_ps(high, high));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

// put(d, element d as a Wide<Value>) for the elements [0, n) of a row.
template <class Value, class Put>
inline void each_element(const Value* row, int64_t n, Put put) {
  if constexpr (std::is_same_v<Value, float16>) {
    int64_t d = 0;
    for (; d + 8 <= n; d += 8) {
      float lanes[8];
      _mm256_storeu_ps(lanes, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + d))));
      for (int64_t j = 0; j < 8; ++j) put(d + j, lanes[j]);
    }
    for (; d < n; ++d) put(d, _cvtsh_ss(row[d].bits));
  } else if constexpr (std::is_same_v<Value, bfloat16>) {
    for (int64_t d = 0; d < n; ++d) put(d, to_float(row[d]));
  } else {
    for (int64_t d = 0; d < n; ++d) put(d, row[d]);
  }
}

// Rounds `n` numbers to nearest and stores them from element `at` of a row of `dtype` on.
template <class Number>
inline void store_row(void* row, DType dtype, int64_t at, const Number* numbers, int64_t n) {
  switch (dtype) {
    case DType::f64:
      for (int64_t d = 0; d < n; ++d) static_cast<double*>(row)[at + d] = static_cast<double>(numbers[d]);
      return;
    case DType::f32:
      for (int64_t d = 0; d < n; ++d) static_cast<float*>(row)[at + d] = static_cast<float>(numbers[d]);
      return;
    case DType::f16:
      for (int64_t d = 0; d < n; ++d)
        static_cast<float16*>(row)[at + d].bits =
            _cvtss_sh(static_cast<float>(numbers[d]), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
      return;
    default:
      for (int64_t d = 0; d < n; ++d) static_cast<bfloat16*>(row)[at + d] = to_bfloat16(static_cast<float>(numbers[d]));
  }
}

}  // namespace tutti::facets
