#include "tutti/codegen/gemm/pack_strips.h"

#include <immintrin.h>

namespace tutti::codegen {
namespace {

constexpr int64_t kRows = 8;  // of a strip
// Rows of k that are asked for ahead, as in pack.cpp.
constexpr int64_t kRowsAhead = 64;

template <class T>
void ask_ahead(const T* row, int64_t k_stride) {
  _mm_prefetch(reinterpret_cast<const char*>(row + kRowsAhead * k_stride), _MM_HINT_T1);
}

// kStrips strips, whose rows are so many neighbours.
template <int kStrips>
void pack_some(const float* from, int64_t k_stride, int64_t k, std::byte* packed, int64_t strip_bytes) {
  float* to[kStrips];
  for (int i = 0; i < kStrips; ++i) to[i] = reinterpret_cast<float*>(packed + i * strip_bytes);
  for (int64_t p = 0; p < k; ++p, from += k_stride)
    for (int i = 0; i < kStrips; ++i) {
      if (i % 2 == 0) ask_ahead(from + i * kRows, k_stride);
      _mm256_storeu_ps(to[i], _mm256_loadu_ps(from + i * kRows));
      to[i] += kRows;
    }
}

// Pairs of neighbouring k, the even one below.
template <int kStrips>
void pack_some(const bfloat16* from, int64_t k_stride, int64_t k, std::byte* packed, int64_t strip_bytes) {
  __m256i* to[kStrips];
  for (int i = 0; i < kStrips; ++i) to[i] = reinterpret_cast<__m256i*>(packed + i * strip_bytes);
  const auto load = [](const bfloat16* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); };
  for (int64_t p = 0; p < k; p += 2, from += 2 * k_stride) {
    ask_ahead(from, k_stride);
    ask_ahead(from + k_stride, k_stride);
    for (int i = 0; i < kStrips; i += 2) {
      const __m256i even = load(from + i * kRows), odd = load(from + k_stride + i * kRows);
      const __m256i low = _mm256_unpacklo_epi16(even, odd), high = _mm256_unpackhi_epi16(even, odd);
      _mm256_storeu_si256(to[i]++, _mm256_permute2x128_si256(low, high, 0x20));
      _mm256_storeu_si256(to[i + 1]++, _mm256_permute2x128_si256(low, high, 0x31));
    }
  }
}

template <class From>
void pack_all(const PackSource& s, int64_t k, int64_t strips, std::byte* packed, int64_t strip_bytes) {
  const From* from = static_cast<const From*>(s.data);
  for (; strips >= 4; strips -= 4, from += 4 * kRows, packed += 4 * strip_bytes)
    pack_some<4>(from, s.k_stride, k, packed, strip_bytes);
  if (strips >= 2) pack_some<2>(from, s.k_stride, k, packed, strip_bytes);
}

}  // namespace

int64_t pack_neighbouring_strips(const PackSource& s, int64_t k, int64_t rows, int64_t strips, TileKind kind,
                                 void* packed, int64_t strip_bytes) {
  auto* to = static_cast<std::byte*>(packed);
  if (s.lane_stride != 1 || rows != kRows) return 0;
  if (kind == TileKind::f32 && s.dtype == DType::f32) pack_all<float>(s, k, strips, to, strip_bytes);
  else if (kind == TileKind::bf16_pairs && s.dtype == DType::bf16 && k % 2 == 0)
    pack_all<bfloat16>(s, k, strips, to, strip_bytes);
  else return 0;
  return strips / 2 * 2;
}

}  // namespace tutti::codegen
