#include "tutti/codegen/gemm/pack_int8.h"

#include <algorithm>
#include <cstring>

#include "tutti/codegen/gemm/simd.h"

namespace tutti::codegen {
namespace {

constexpr int64_t kSide = 8;  // pairs, or quadruples, in a register

int32_t pair_of(int8_t low, int8_t high) {
  return static_cast<int32_t>(static_cast<uint32_t>(static_cast<uint16_t>(low)) |
                              static_cast<uint32_t>(static_cast<uint16_t>(high)) << 16);
}

void pack_any_strides(const int8_t* from, const PackSource& s, int64_t k, int64_t lanes, int32_t* to, int64_t width) {
  const int64_t step = s.k_stride / 2;
  for (int64_t p = 0; p < k; ++p, to += width, from += s.k_stride) {
    for (int64_t j = 0; j < lanes; ++j) to[j] = pair_of(from[j * s.lane_stride], from[j * s.lane_stride + step]);
    std::fill(to + lanes, to + width, 0);
  }
}

// Lanes are neighbours: two rows are interleaved and widened.
void pack_rows(const int8_t* from, const PackSource& s, int64_t k, int64_t lanes, int32_t* to, int64_t width) {
  const int64_t step = s.k_stride / 2, whole = lanes / kSide * kSide;
  for (int64_t p = 0; p < k; ++p, to += width, from += s.k_stride) {
    for (int64_t j = 0; j < whole; j += kSide) {
      const __m128i low = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + j));
      const __m128i high = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + step + j));
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + j), _mm256_cvtepi8_epi16(_mm_unpacklo_epi8(low, high)));
    }
    for (int64_t j = whole; j < lanes; ++j) to[j] = pair_of(from[j], from[step + j]);
    std::fill(to + lanes, to + width, 0);
  }
}

// The elements of a lane are neighbours: squares of pairs are transposed, as pack_columns() of gemm_pack.cpp does.
void pack_columns(const int8_t* from, const PackSource& s, int64_t k, int64_t lanes, int32_t* to, int64_t width) {
  using Block = simd::Block<float>;
  for (int64_t j = (width - 1) / kSide * kSide; j >= 0; j -= kSide) {
    const int8_t* row[kSide];
    for (int64_t i = 0; i < kSide; ++i) row[i] = from + std::min(j + i, lanes - 1) * s.lane_stride;
    for (int64_t next = 0; next < k; next += kSide) {
      const int64_t p = std::min(next, k - kSide);
      Block::Vector block[kSide];
      for (int64_t i = 0; i < kSide; ++i)
        block[i] = _mm256_castsi256_ps(
            _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row[i] + 2 * p))));
      Block::transpose(block);
      for (int64_t i = 0; i < kSide; ++i)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (p + i) * width + j), _mm256_castps_si256(block[i]));
    }
  }
}

// ---- quadruples; `flip` has the bits in which a byte of side A differs

int32_t quad_of(const int8_t* first, int64_t step, int32_t flip) {
  uint32_t bits = 0;
  for (int64_t i = 0; i < 4; ++i) bits |= static_cast<uint32_t>(static_cast<uint8_t>(first[i * step])) << (8 * i);
  return static_cast<int32_t>(bits) ^ flip;
}

void pack_quads_any_strides(const int8_t* from, const PackSource& s, int64_t k, int64_t lanes, int32_t flip,
                            int32_t* to, int64_t width) {
  for (int64_t p = 0; p < k; ++p, to += width, from += s.k_stride) {
    for (int64_t j = 0; j < lanes; ++j) to[j] = quad_of(from + j * s.lane_stride, s.k_stride / 4, flip);
    std::fill(to + lanes, to + width, 0);
  }
}

// Lanes are neighbours: four rows are interleaved.
void pack_quad_rows(const int8_t* from, const PackSource& s, int64_t k, int64_t lanes, int32_t flip, int32_t* to,
                    int64_t width) {
  const int64_t step = s.k_stride / 4, whole = lanes / kSide * kSide;
  const __m128i flips = _mm_set1_epi32(flip);
  for (int64_t p = 0; p < k; ++p, to += width, from += s.k_stride) {
    const auto row = [&](int64_t i, int64_t j) {
      return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + i * step + j));
    };
    for (int64_t j = 0; j < whole; j += kSide) {
      const __m128i low = _mm_unpacklo_epi8(row(0, j), row(1, j)), high = _mm_unpacklo_epi8(row(2, j), row(3, j));
      auto* at = reinterpret_cast<__m128i*>(to + j);
      _mm_storeu_si128(at, _mm_xor_si128(_mm_unpacklo_epi16(low, high), flips));
      _mm_storeu_si128(at + 1, _mm_xor_si128(_mm_unpackhi_epi16(low, high), flips));
    }
    for (int64_t j = whole; j < lanes; ++j) to[j] = quad_of(from + j, step, flip);
    std::fill(to + lanes, to + width, 0);
  }
}

// The elements of a lane are neighbours: squares of quadruples are transposed.
void pack_quad_columns(const int8_t* from, const PackSource& s, int64_t k, int64_t lanes, int32_t flip, int32_t* to,
                       int64_t width) {
  using Block = simd::Block<float>;
  const __m256i flips = _mm256_set1_epi32(flip);
  for (int64_t j = (width - 1) / kSide * kSide; j >= 0; j -= kSide) {
    const int8_t* row[kSide];
    for (int64_t i = 0; i < kSide; ++i) row[i] = from + std::min(j + i, lanes - 1) * s.lane_stride;
    for (int64_t next = 0; next < k; next += kSide) {
      const int64_t p = std::min(next, k - kSide);
      Block::Vector block[kSide];
      for (int64_t i = 0; i < kSide; ++i) block[i] = _mm256_loadu_ps(reinterpret_cast<const float*>(row[i] + 4 * p));
      Block::transpose(block);
      for (int64_t i = 0; i < kSide; ++i)
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + (p + i) * width + j),
                            _mm256_xor_si256(_mm256_castps_si256(block[i]), flips));
    }
  }
}

}  // namespace

void pack_int8_quads(const PackSource& source, int64_t k, int64_t lanes, PackSide side, int32_t* packed,
                     int64_t width) {
  const int8_t* from = static_cast<const int8_t*>(source.data);
  const int32_t flip = side == PackSide::a ? static_cast<int32_t>(0x80808080) : 0;
  if (source.lane_stride == 1) return pack_quad_rows(from, source, k, lanes, flip, packed, width);
  if (source.k_stride == 4 && k >= kSide) return pack_quad_columns(from, source, k, lanes, flip, packed, width);
  pack_quads_any_strides(from, source, k, lanes, flip, packed, width);
}

void pack_int8_pairs(const PackSource& source, int64_t k, int64_t lanes, int32_t* packed, int64_t width) {
  const int8_t* from = static_cast<const int8_t*>(source.data);
  if (source.lane_stride == 1) return pack_rows(from, source, k, lanes, packed, width);
  if (source.k_stride == 2 && k >= kSide) return pack_columns(from, source, k, lanes, packed, width);
  pack_any_strides(from, source, k, lanes, packed, width);
}

}  // namespace tutti::codegen
