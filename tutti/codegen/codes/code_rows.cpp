#include "tutti/codegen/codes/code_rows.h"

#include <algorithm>

#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/row_lanes.h"
#include "tutti/codegen/codes/word_panel.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Elements below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 14;

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
      const auto* of_row = static_cast<const uint8_t*>(p_.x) + (first_ + row) * p_.k;
      if (p_.codes == DType::f8e4m3fn) codes::e4m3_row(of_row, p_.k, values_ + row * stride_);
      else codes::unpack_row(of_row, p_.k, codes::ByteWords(p_.x_codes, p_.x_zero_point), words_ + row * stride_);
      return;
    }
    if (p_.x_dtype == DType::f32) round_numbers<float>(row, scale);
    else if (p_.x_dtype == DType::bf16) round_numbers<bfloat16>(row, scale);
    else round_numbers<float16>(row, scale);
  }

 private:
  template <class T>
  void round_numbers(int64_t row, float* to_scale) const {
    const T* x = static_cast<const T*>(p_.x) + (first_ + row) * p_.k;
    CodeScale scale;
    if (p_.x_scale.data == nullptr) scale = code_scale(codes::largest_magnitude(x, p_.k), p_.x_codes);
    else scale.d = p_.x_scale[first_ + row], scale.inverse = 1.0F / scale.d;
    *to_scale = scale.d;
    const bool is_zero = scale.inverse == 0;  // 0 times an infinity is no code
    const __m256 inverse = _mm256_set1_ps(scale.inverse);
    if (p_.codes == DType::f8e4m3fn) {
      float* to = values_ + row * stride_;
      codes::visit_lanes(x, p_.k, [&](int64_t at, int64_t count, __m256 v) {
        float numbers[8];
        _mm256_storeu_ps(numbers, is_zero ? _mm256_setzero_ps() : codes::e4m3_rounded(_mm256_mul_ps(v, inverse)));
        std::copy_n(numbers, count, to + at);
      });
      return;
    }
    int16_t* to = words_ + row * stride_;
    codes::visit_lanes(x, p_.k, [&](int64_t at, int64_t count, __m256 v) {
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
