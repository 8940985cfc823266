#include "tutti/codegen/codes/code_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/word_panel.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using Lanes = simd::Block<float>;

// Elements below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 14;

// Numbers of any dtype as f32, eight at a time, the last ones with zeros behind them.
template <class T, class Visit>
void visit_numbers(const T* row, int64_t k, Visit visit) {
  int64_t p = 0;
  for (; p + 8 <= k; p += 8) visit(p, 8, Lanes::load(row + p));
  if (p == k) return;
  T rest[8] = {};
  std::copy_n(row + p, k - p, rest);
  visit(p, k - p, Lanes::load(rest));
}

template <class T>
float largest_magnitude(const T* row, int64_t k) {
  // As integers magnitudes compare as they do, and NaN is above all.
  __m256i largest = _mm256_setzero_si256();
  visit_numbers(row, k, [&](int64_t, int64_t, __m256 v) {
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(v), _mm256_set1_epi32(0x7fffffff)));
  });
  alignas(32) uint32_t each[8];
  _mm256_store_si256(reinterpret_cast<__m256i*>(each), largest);
  return std::bit_cast<float>(*std::max_element(each, each + 8));
}

// Eight codes less the zero point.
__m256i integer_words(__m256 x_over_scale, DType dtype, int32_t zero_point) {
  const __m256 zero = _mm256_set1_ps(static_cast<float>(zero_point));
  return _mm256_cvtps_epi32(_mm256_sub_ps(codes::integer_codes(dtype, x_over_scale, zero_point), zero));
}

class Rows {
 public:
  Rows(const ScaledProduct& p, int64_t first, CodeRows& to, std::byte* bytes)
      : p_(p),
        first_(first),
        stride_(to.stride),
        words_(reinterpret_cast<int16_t*>(bytes)),
        values_(reinterpret_cast<float*>(bytes)) {}

  void fill(int64_t row, float* scale) const {
    if (is_code(p_.x_dtype)) {
      *scale = p_.x_scale[first_ + row];
      const auto* codes = static_cast<const uint8_t*>(p_.x) + (first_ + row) * p_.k;
      if (p_.codes == DType::f8e4m3fn) decode(codes, values_ + row * stride_);
      else codes::unpack_row(codes, p_.k, codes::ByteWords(p_.x_codes, p_.x_zero_point), words_ + row * stride_);
      return;
    }
    if (p_.x_dtype == DType::f32) round_numbers<float>(row, scale);
    else if (p_.x_dtype == DType::bf16) round_numbers<bfloat16>(row, scale);
    else round_numbers<float16>(row, scale);
  }

 private:
  void decode(const uint8_t* codes, float* to) const {
    int64_t p = 0;
    for (; p + 8 <= p_.k; p += 8) _mm256_storeu_ps(to + p, codes::e4m3_values(codes + p));
    for (; p < p_.k; ++p) to[p] = to_float(float8_e4m3fn{codes[p]});
  }

  template <class T>
  void round_numbers(int64_t row, float* to_scale) const {
    const T* x = static_cast<const T*>(p_.x) + (first_ + row) * p_.k;
    CodeScale scale;
    if (p_.x_scale.data == nullptr) scale = code_scale(largest_magnitude(x, p_.k), p_.x_codes);
    else scale.d = p_.x_scale[first_ + row], scale.inverse = 1.0F / scale.d;
    *to_scale = scale.d;
    const bool is_zero = scale.inverse == 0;  // 0 times an infinity is no code
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    if (p_.codes == DType::f8e4m3fn) {
      float* to = values_ + row * stride_;
      visit_numbers(x, p_.k, [&](int64_t at, int64_t count, __m256 v) {
        float numbers[8];
        _mm256_storeu_ps(numbers, is_zero ? _mm256_setzero_ps() : codes::e4m3_rounded(_mm256_mul_ps(v, inverse)));
        std::copy_n(numbers, count, to + at);
      });
      return;
    }
    int16_t* to = words_ + row * stride_;
    visit_numbers(x, p_.k, [&](int64_t at, int64_t count, __m256 v) {
      const __m256i words =
          is_zero ? _mm256_setzero_si256() : integer_words(_mm256_mul_ps(v, inverse), p_.x_codes, p_.x_zero_point);
      int16_t eight[8];
      _mm_storeu_si128(reinterpret_cast<__m128i*>(eight),
                       _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
      std::copy_n(eight, count, to + at);
    });
    if (stride_ > p_.k) to[p_.k] = 0;
  }

  const ScaledProduct& p_;
  const int64_t first_, stride_;
  int16_t* words_;
  float* values_;
};

}  // namespace

CodeRows code_rows(const ScaledProduct& p, int64_t first, int64_t count, Workspace& memory, ThreadPool& pool) {
  const bool has_values = p.codes == DType::f8e4m3fn;
  CodeRows to{.stride = has_values ? p.k : codes::padded(p.k)};
  const int64_t nbytes = (count * to.stride * (has_values ? 4 : 2) + 63) / 64 * 64;
  std::byte* bytes = memory.reserve(nbytes + count * itemsize(DType::f32));
  auto* scales = reinterpret_cast<float*>(bytes + nbytes);
  if (has_values) to.values = reinterpret_cast<float*>(bytes);
  else to.words = reinterpret_cast<int16_t*>(bytes);
  to.scales = scales;
  const Rows rows(p, first, to, bytes);
  pool.parallel_for(count, kWorthATask / (p.k + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) rows.fill(row, scales + row);
  });
  return to;
}

}  // namespace tutti::codegen
