#include "tutti/codegen/codes/row_codes.h"

#include <algorithm>
#include <cstring>

#include "tutti/codegen/codes/code_type.h"
#include "tutti/codegen/codes/row_lanes.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

constexpr int64_t kSide = 8;

struct Int8 {
  static constexpr DType kDType = DType::i8;
  static __m256i encode(__m256 v) { return _mm256_cvtps_epi32(v); }
  static __m256 decode(__m128i bytes) { return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)); }
};

struct Float8 {
  static constexpr DType kDType = DType::f8e4m3fn;
  static __m256i encode(__m256 v) { return codes::e4m3_codes(v); }
  static __m256 decode(__m128i bytes) { return codes::e4m3_values(bytes); }
};

template <class Code, class T>
float quantize(const T* x, int64_t n, uint8_t* to) {
  const CodeScale scale = code_scale(codes::largest_magnitude(x, n), Code::kDType);
  if (scale.inverse == 0) {
    std::fill_n(to, n, uint8_t{0});  // memset() takes no null pointer, which no codes may have
    return scale.d;
  }
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  codes::visit_lanes(x, n, [&](int64_t i, int64_t count, __m256 v) {
    const uint64_t eight = codes::low_bytes(Code::encode(_mm256_mul_ps(v, inverse)));
    std::memcpy(to + i, &eight, static_cast<size_t>(count));
  });
  return scale.d;
}

template <class Code>
float quantize_as(const void* x, DType dtype, int64_t n, uint8_t* codes) {
  switch (dtype) {
    case DType::f32:
      return quantize<Code>(static_cast<const float*>(x), n, codes);
    case DType::bf16:
      return quantize<Code>(static_cast<const bfloat16*>(x), n, codes);
    case DType::f16:
      return quantize<Code>(static_cast<const float16*>(x), n, codes);
    default:
      throw InternalError(fmt::format("quantize_row: {}", name_of(dtype)));
  }
}

template <class Code>
void decode(const uint8_t* codes, int64_t stride, const float* scales, int64_t scale_stride, int64_t rows, int64_t n,
            float* decoded) {
  for (int64_t r = 0; r < rows; ++r, codes += stride, decoded += n) {
    const __m256 scale = _mm256_set1_ps(scales[r * scale_stride]);
    int64_t i = 0;
    for (; i + kSide <= n; i += kSide)
      _mm256_storeu_ps(
          decoded + i,
          _mm256_mul_ps(Code::decode(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes + i))), scale));
    if (i == n) continue;
    uint64_t rest = 0;
    std::memcpy(&rest, codes + i, static_cast<size_t>(n - i));
    _mm256_storeu_ps(decoded + i, _mm256_mul_ps(Code::decode(_mm_cvtsi64_si128(static_cast<long long>(rest))), scale));
  }
}

}  // namespace

float quantize_row(const void* x, DType dtype, int64_t n, DType code, void* codes) {
  TUTTI_ASSERT(is_row_code(code), "quantize_row: codes of {}", name_of(code));
  const auto bytes = static_cast<uint8_t*>(codes);
  return code == DType::i8 ? quantize_as<Int8>(x, dtype, n, bytes) : quantize_as<Float8>(x, dtype, n, bytes);
}

void decode_rows(const void* codes, DType code, int64_t stride, const float* scales, int64_t scale_stride, int64_t rows,
                 int64_t n, float* decoded) {
  TUTTI_ASSERT(is_row_code(code), "decode_rows: codes of {}", name_of(code));
  const auto bytes = static_cast<const uint8_t*>(codes);
  if (code == DType::i8) decode<Int8>(bytes, stride, scales, scale_stride, rows, n, decoded);
  else decode<Float8>(bytes, stride, scales, scale_stride, rows, n, decoded);
}

}  // namespace tutti::codegen
