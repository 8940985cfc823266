// Rows of floats in lanes of eight, as codes are made of them. Private to this folder.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tutti/codegen/gemm/simd.h"

namespace tutti::codegen::codes {

// Visits a row of n elements by eight, widened to f32: visit(first, count, lanes). The last lanes have zeros behind the
// row, of which nothing is read.
template <class T, class Visit>
void visit_lanes(const T* row, int64_t n, Visit visit) {
  int64_t i = 0;
  for (; i + 8 <= n; i += 8) visit(i, int64_t{8}, simd::Block<float>::load(row + i));
  if (i < n) visit(i, n - i, simd::load_part<float>(row + i, n - i));
}

// Magnitudes compare as their bits do, with NaN above all.
template <class T>
float largest_magnitude(const T* row, int64_t n) {
  __m256i largest = _mm256_setzero_si256();
  visit_lanes(row, n, [&](int64_t, int64_t, __m256 v) {
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff)));
  });
  alignas(32) uint32_t each[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(each), largest);
  return std::bit_cast<float>(*std::max_element(each, each + 8));
}

}  // namespace tutti::codegen::codes
