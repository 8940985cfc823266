// Rows of tables as floats: eight lanes at a time for f16, whose conversion is an instruction.
#pragma once

#include <immintrin.h>

#include <type_traits>

#include "tutti/core/dtype.h"

namespace tutti::facets {

template <class Value>
using Wide = std::conditional_t<std::is_same_v<Value, double>, double, float>;

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
