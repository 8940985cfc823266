#include "tutti/codegen/codes/softmax_row.h"

#include <immintrin.h>

#include <algorithm>
#include <limits>

#include "tutti/codegen/codes/exp_lanes.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/wide.h"

namespace tutti::codegen::codes {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

float sum_of_lanes(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

float largest_narrow(const float* scores, int64_t count) {
  __m256 largest = _mm256_set1_ps(-kInf), no_numbers = _mm256_setzero_ps();
  for (int64_t key = 0; key < count; key += 8) {
    const __m256 eight = _mm256_loadu_ps(scores + key);
    largest = _mm256_max_ps(eight, largest);
    no_numbers = _mm256_or_ps(no_numbers, _mm256_cmp_ps(eight, eight, _CMP_UNORD_Q));
  }
  if (_mm256_movemask_ps(no_numbers) != 0) return kNaN;
  alignas(32) float each[8];
  _mm256_store_ps(each, largest);
  return *std::max_element(each, each + 8);
}

[[TUTTI_WIDE]] float largest_wide(const float* scores, int64_t count) {
  __m512 largest = _mm512_set1_ps(-kInf);
  __mmask16 no_numbers = 0;
  for (int64_t key = 0; key < count; key += 16) {
    const __m512 some = _mm512_loadu_ps(scores + key);
    largest = _mm512_max_ps(some, largest);
    no_numbers = static_cast<__mmask16>(no_numbers | _mm512_cmp_ps_mask(some, some, _CMP_UNORD_Q));
  }
  if (no_numbers != 0) return kNaN;
  alignas(64) float each[16];
  _mm512_store_ps(each, largest);
  return *std::max_element(each, each + 16);
}

// The exponentials of a block; returns their sums in eight lanes.
__m256 block_narrow(float* scores, float m) {
  __m256 sums = _mm256_setzero_ps();
  for (int64_t key = 0; key < kKeyBlock; key += 8) {
    const __m256 some = _mm256_loadu_ps(scores + key);
    const __m256 is_hidden = _mm256_cmp_ps(some, _mm256_set1_ps(-kInf), _CMP_EQ_OQ);
    const __m256 e = _mm256_andnot_ps(is_hidden, exp_lanes(_mm256_sub_ps(some, _mm256_set1_ps(m))));
    _mm256_storeu_ps(scores + key, e);
    sums = _mm256_add_ps(sums, e);
  }
  return sums;
}

[[TUTTI_WIDE]] __m256 block_wide(float* scores, float m) {
  __m256 sums = _mm256_setzero_ps();
  for (int64_t key = 0; key < kKeyBlock; key += 16) {
    const __m512 some = _mm512_loadu_ps(scores + key);
    const __mmask16 is_seen = _mm512_cmp_ps_mask(some, _mm512_set1_ps(-kInf), _CMP_NEQ_UQ);
    const __m512 e = _mm512_maskz_mov_ps(is_seen, exp_lanes(_mm512_sub_ps(some, _mm512_set1_ps(m))));
    _mm512_storeu_ps(scores + key, e);
    sums = _mm256_add_ps(_mm256_add_ps(sums, _mm512_castps512_ps256(e)), _mm512_extractf32x8_ps(e, 1));
  }
  return sums;
}

}  // namespace

float largest_score(const float* scores, int64_t count) {
  return has_wide_registers(cpu_target()) ? largest_wide(scores, count) : largest_narrow(scores, count);
}

float exponentials(float* scores, int64_t count, float m) {
  const bool is_wide = has_wide_registers(cpu_target());
  // The nodes of the aligned tree that wait for their siblings.
  float pending[48];
  int64_t top = 0;
  for (int64_t block = 0; block < count; block += kKeyBlock) {
    float sum = sum_of_lanes(is_wide ? block_wide(scores + block, m) : block_narrow(scores + block, m));
    for (int64_t number = block / kKeyBlock + 1; number % 2 == 0; number /= 2) sum = pending[--top] + sum;
    pending[top++] = sum;
  }
  float sum = 0;
  while (top > 0) sum = pending[--top] + sum;
  return sum;
}

}  // namespace tutti::codegen::codes
