#include "tutti/codegen/gemm/pack.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <type_traits>

#include "tutti/codegen/gemm/lines_ahead.h"
#include "tutti/codegen/gemm/pack_bf16.h"
#include "tutti/codegen/gemm/pack_int8.h"
#include "tutti/codegen/gemm/simd.h"

namespace tutti::codegen {
namespace {

// Rows that are asked for ahead, into the second-level cache: whole pages apart, more than a few would push each other
// out of the first.
constexpr int64_t kRowsAhead = 64;

template <class From, class To>
void pack_any_strides(const From* from, const PackSource& s, int64_t k, int64_t lanes, To* to, int64_t width) {
  for (int64_t p = 0; p < k; ++p, to += width) {
    const From* row = from + p * s.k_stride;
    for (int64_t j = 0; j < lanes; ++j) to[j] = static_cast<To>(simd::widen(row[j * s.lane_stride]));
    for (int64_t j = lanes; j < width; ++j) to[j] = To{0};
  }
}

// Lanes are neighbours in memory: rows are copied. A store past `width` is overwritten by the next row's first one.
template <class From, class To>
void pack_rows(const From* from, const PackSource& s, int64_t k, int64_t lanes, To* to, int64_t width) {
  using Block = simd::Block<To>;
  constexpr int64_t kSide = Block::kSide;
  const int64_t whole = lanes / kSide * kSide;
  for (int64_t p = 0; p < k; ++p, from += s.k_stride, to += width) {
    // Short pieces far apart are what the processor's own prefetchers do not see coming.
    const char* ahead = reinterpret_cast<const char*>(from + kRowsAhead * s.k_stride);
    for (int64_t offset = 0; offset < lanes * static_cast<int64_t>(sizeof(From)); offset += 64)
      _mm_prefetch(ahead + offset, _MM_HINT_T1);
    for (int64_t j = 0; j < whole; j += kSide) Block::store(to + j, Block::load(from + j));
    if (whole < lanes) {
      // Reading on is allowed where the next row surely covers what is read.
      const bool may_read_on = p + 1 < k && s.k_stride >= kSide;
      Block::store(to + whole,
                   may_read_on ? Block::load(from + whole) : simd::load_part<To>(from + whole, lanes - whole));
    }
    for (int64_t j = whole + (whole < lanes ? kSide : 0); j < width; j += kSide)
      Block::store(to + j, typename Block::Vector{});
  }
}

// k are neighbours in memory: square blocks are transposed, group of lanes by group of lanes so that few streams are
// read at once. The last, partial group goes first: what it stores past `width` is overwritten by the first group. The
// next group is asked for meanwhile, and behind the first one that of the next panel.
template <class From, class To>
void pack_columns(const From* from, const PackSource& s, int64_t k, int64_t lanes, To* to, int64_t width) {
  using Block = simd::Block<To>;
  constexpr int64_t kSide = Block::kSide;
  for (int64_t j = (width - 1) / kSide * kSide; j >= 0; j -= kSide) {
    const From* row[kSide];
    for (int64_t i = 0; i < kSide; ++i) row[i] = from + std::min(j + i, lanes - 1) * s.lane_stride;
    constexpr auto kBytes = static_cast<int64_t>(sizeof(From));
    LinesAhead lines(from, next_group(width, kSide, j), kSide, s.lane_stride * kBytes, k * kBytes);
    for (int64_t next = 0; next < k; next += kSide) {
      lines.ask(kSide * kSide * kBytes / 64);
      const int64_t p = std::min(next, k - kSide);  // the last block overlaps the one before
      typename Block::Vector block[kSide];
      for (int64_t i = 0; i < kSide; ++i) block[i] = Block::load(row[i] + p);
      Block::transpose(block);
      for (int64_t i = 0; i < kSide; ++i) Block::store(to + (p + i) * width + j, block[i]);
    }
  }
}

template <class From, class To>
void pack_as(const PackSource& s, int64_t k, int64_t lanes, void* packed, int64_t width) {
  const From* from = static_cast<const From*>(s.data);
  To* to = static_cast<To*>(packed);
  if (s.lane_stride == 1) return pack_rows(from, s, k, lanes, to, width);
  if (s.k_stride == 1 && k >= simd::Block<To>::kSide) return pack_columns(from, s, k, lanes, to, width);
  pack_any_strides(from, s, k, lanes, to, width);
}

uint16_t bits_of_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1)) >> 16;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? bits >> 16 | 0x40 : rounded);
}

template <class From, class To>
To rounded(From value) {
  if constexpr (std::is_same_v<To, bfloat16>) return {bits_of_bf16(static_cast<float>(value))};
  else if constexpr (std::is_same_v<To, float16>) return to_float16(static_cast<float>(value));
  else return static_cast<To>(value);
}

template <class From, class To>
void store_row(const From* from, int64_t columns, To* to, int64_t to_stride) {
  if (to_stride != 1) {
    for (int64_t j = 0; j < columns; ++j) to[j * to_stride] = rounded<From, To>(from[j]);
    return;
  }
  for (int64_t j = 0; j < columns; ++j) to[j] = rounded<From, To>(from[j]);
}

// Eight at a time in hardware, which rounds as to_float16 does except for the payload of NaN.
template <>
void store_row(const float* from, int64_t columns, float16* to, int64_t to_stride) {
  int64_t j = 0;
  for (; to_stride == 1 && j + 8 <= columns; j += 8) {
    const __m256 values = _mm256_loadu_ps(from + j);
    if (_mm256_movemask_ps(_mm256_cmp_ps(values, values, _CMP_UNORD_Q)) != 0) break;
    _mm_storeu_si128(reinterpret_cast<__m128i*>(to + j), _mm256_cvtps_ph(values, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; j < columns; ++j) to[j * to_stride] = to_float16(from[j]);
}

template <class Fn>
void visit_gemm_dtype(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::f64:
      return fn.template operator()<double>();
    case DType::f32:
      return fn.template operator()<float>();
    case DType::bf16:
      return fn.template operator()<bfloat16>();
    case DType::f16:
      return fn.template operator()<float16>();
    default:
      break;
  }
  throw InternalError(fmt::format("gemm: no packing of {}", name_of(dtype)));
}

}  // namespace

void pack(const PackSource& source, int64_t k, int64_t lanes, DType compute, void* packed, int64_t width) {
  visit_gemm_dtype(source.dtype, [&]<class From>() {
    if (compute == DType::f64) return pack_as<From, double>(source, k, lanes, packed, width);
    if constexpr (!std::is_same_v<From, double>) pack_as<From, float>(source, k, lanes, packed, width);
  });
}

void pack(const PackSource& source, int64_t k, int64_t lanes, TileKind kind, PackSide side, void* packed,
          int64_t width) {
  switch (kind) {
    case TileKind::f64:
    case TileKind::f32:
      return pack(source, k, lanes, sum_dtype(kind), packed, width);
    case TileKind::bf16_chain:
    case TileKind::bf16_pairs:
      return pack_bf16(source, k, lanes, kind, side, packed, width);
    case TileKind::int16_pairs:
      return pack_int8_pairs(source, k, lanes, static_cast<int32_t*>(packed), width);
    case TileKind::int8_quads:
      return pack_int8_quads(source, k, lanes, side, static_cast<int32_t*>(packed), width);
  }
}

void pack_leaves(const PackSource& source, std::span<const int32_t> leaf_lengths, int64_t lanes, TileKind kind,
                 PackSide side, void* packed, int64_t width) {
  PackSource rest = source;
  std::byte* to = static_cast<std::byte*>(packed);
  for_each_even_run(kind, leaf_lengths, [&](int64_t length) {
    pack(rest, length, lanes, kind, side, to, width);
    rest.data = static_cast<const std::byte*>(rest.data) + length * rest.k_stride * itemsize(rest.dtype);
    to += items_of(kind, length) * width * item_bytes(kind);
  });
}

void store_tile(const void* tile, DType compute, int64_t tile_stride, int64_t rows, int64_t columns, void* c,
                DType c_dtype, int64_t c_row_stride, int64_t c_column_stride) {
  if (compute == DType::i32) {
    const int32_t* from = static_cast<const int32_t*>(tile);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        static_cast<int32_t*>(c)[i * c_row_stride + j * c_column_stride] = from[i * tile_stride + j];
    return;
  }
  visit_gemm_dtype(c_dtype, [&]<class To>() {
    const auto store = [&]<class From>(const From* from) {
      To* to = static_cast<To*>(c);
      for (int64_t i = 0; i < rows; ++i)
        store_row<From, To>(from + i * tile_stride, columns, to + i * c_row_stride, c_column_stride);
    };
    if (compute == DType::f64) store(static_cast<const double*>(tile));
    else store(static_cast<const float*>(tile));
  });
}

}  // namespace tutti::codegen
