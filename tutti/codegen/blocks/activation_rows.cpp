#include "tutti/codegen/blocks/activation_rows.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tutti/codegen/gemm/simd.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using Lanes = simd::Block<float>;

// Elements below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 15;
constexpr uint32_t kInfinity = 0x7f800000;

uint32_t largest_of(__m256i v) {
  __m128i m = _mm_max_epu32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0x4e));
  m = _mm_max_epu32(m, _mm_shuffle_epi32(m, 0xb1));
  return static_cast<uint32_t>(_mm_cvtsi128_si32(m));
}

int32_t sum_of(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

// The largest magnitude as its bits, which compare as magnitudes do and tell what is not finite.
template <class T>
uint32_t largest_magnitude(const T* x, int64_t block) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  __m256i largest = _mm256_setzero_si256();
  for (int64_t i = 0; i < block; i += Lanes::kSide)
    largest = _mm256_max_epu32(largest, _mm256_and_si256(_mm256_castps_si256(Lanes::load(x + i)), magnitude));
  return largest_of(largest);
}

struct Scale {
  float d, inverse;
};
Scale scale_of(uint32_t largest, int64_t block) {
  if (largest >= kInfinity) return {std::numeric_limits<float>::quiet_NaN(), 0};
  const auto a = std::bit_cast<float>(largest);
  Scale scale{};
  if (block == kSuperBlock) scale.inverse = 127.0F / a, scale.d = 1.0F / scale.inverse;
  else scale.d = a / 127.0F, scale.inverse = 1.0F / scale.d;
  return std::isnormal(scale.d) ? scale : Scale{0, 0};
}

// One block of a row: that of place `i` among `g` rows that stand together.
struct BlockPlace {
  int8_t* codes;
  float* scale;
  int16_t* sums;
  int64_t g, i;

  void put(int64_t element, __m128i sixteen_codes, int32_t sum) const {
    alignas(16) int32_t words[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(words), sixteen_codes);
    for (int64_t w = 0; w < 4; ++w) std::memcpy(codes + 4 * ((element / 4 + w) * g + i), &words[w], sizeof(words[w]));
    const int64_t s = element / kElementsOfSum;
    sums[2 * (s / 2 * g + i) + s % 2] = static_cast<int16_t>(sum);
  }
};

void put_zeros(float scale, int64_t block, const BlockPlace& to) {
  to.scale[to.i] = scale;
  for (int64_t e = 0; e < block; e += kElementsOfSum) to.put(e, _mm_setzero_si128(), 0);
}

template <class T>
void quantize_block(const T* x, int64_t block, const BlockPlace& to) {
  const Scale scale = scale_of(largest_magnitude(x, block), block);
  if (scale.inverse == 0) return put_zeros(scale.d, block, to);  // 0 times an infinity is no code
  to.scale[to.i] = scale.d;
  const __m256 inverse = _mm256_set1_ps(scale.inverse);
  for (int64_t e = 0; e < block; e += kElementsOfSum) {
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(Lanes::load(x + e), inverse));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(Lanes::load(x + e + Lanes::kSide), inverse));
    const __m256i both = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    to.put(e, _mm_packs_epi16(_mm256_castsi256_si128(both), _mm256_extracti128_si256(both, 1)),
           sum_of(_mm256_add_epi32(low, high)));
  }
}

int64_t filled_up(int64_t rows, int64_t together) { return (rows + together - 1) / together * together; }

template <class T>
void quantize(const T* x, const ActivationRows& to, ThreadPool& pool) {
  const int64_t blocks = to.k / to.block;
  pool.parallel_for(filled_up(to.rows, to.together) * blocks, kWorthATask / to.block, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const int64_t row = b / blocks, i = row % to.together, first = row - i, block = b % blocks;
      const BlockPlace place{to.codes_of(first, block), to.scales_of(first, block), to.sums_of(first, block),
                             to.together, i};
      if (row < to.rows) quantize_block(x + b * to.block, to.block, place);
      else put_zeros(0, to.block, place);
    }
  });
}

}  // namespace

ActivationRows quantize_rows(const void* x, DType dtype, int64_t rows, int64_t k, int64_t block, int64_t together,
                             Workspace& memory, ThreadPool& pool) {
  TUTTI_ASSERT(k % block == 0, "quantize_rows: {} elements are no blocks of {}", k, block);
  const int64_t elements = filled_up(rows, together) * k, scales = elements / block * itemsize(DType::f32),
                sums = elements / kElementsOfSum * itemsize(DType::i16);
  std::byte* bytes = memory.reserve(elements + scales + sums);
  const ActivationRows to{.rows = rows,
                          .k = k,
                          .block = block,
                          .together = together,
                          .codes = reinterpret_cast<int8_t*>(bytes),
                          .scales = reinterpret_cast<float*>(bytes + elements),
                          .sums = reinterpret_cast<int16_t*>(bytes + elements + scales)};
  switch (dtype) {
    case DType::f32:
      quantize(static_cast<const float*>(x), to, pool);
      break;
    case DType::bf16:
      quantize(static_cast<const bfloat16*>(x), to, pool);
      break;
    case DType::f16:
      quantize(static_cast<const float16*>(x), to, pool);
      break;
    default:
      throw InternalError(fmt::format("quantize_rows: {}", name_of(dtype)));
  }
  return to;
}

}  // namespace tutti::codegen
