#include "tutti/codegen/gemm/pack_bf16.h"

#include <algorithm>
#include <bit>

#include "tutti/codegen/gemm/lines_ahead.h"
#include "tutti/codegen/gemm/simd.h"

namespace tutti::codegen {
namespace {

using Block = simd::Block<float>;
constexpr int64_t kSide = Block::kSide;
// Rows that are asked for ahead, as in gemm_pack.cpp.
constexpr int64_t kRowsAhead = 64;
constexpr uint32_t kOdd = 0xffff0000u;

__m256i bits(__m256 v) { return _mm256_castps_si256(v); }
void store(uint32_t* to, __m256i v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }

// Eight pairs of neighbouring elements.
__m256i load_pairs(const bfloat16* p) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)); }
__m256i load_pairs(const float* p) {
  const __m256i low = _mm256_srli_epi32(bits(_mm256_loadu_ps(p)), 16),
                high = _mm256_srli_epi32(bits(_mm256_loadu_ps(p + kSide)), 16);
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(low, high), 0xd8);
}

// What stands in packed memory for a pair whose elements are given as bits of f32.
struct Pairs {
  static constexpr int64_t kRows = 1;  // of packed memory
  static void store_pairs(uint32_t* to, int64_t, __m256i pairs) { store(to, pairs); }
  static void put(uint32_t* to, int64_t, uint32_t even, uint32_t odd) { *to = even >> 16 | odd; }
};
struct OddFirst {
  static constexpr int64_t kRows = 2;
  static void store_pairs(uint32_t* to, int64_t width, __m256i pairs) {
    store(to, _mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int32_t>(kOdd))));
    store(to + width, _mm256_slli_epi32(pairs, 16));
  }
  static void put(uint32_t* to, int64_t width, uint32_t even, uint32_t odd) {
    to[0] = odd;
    to[width] = even;
  }
};

template <class From>
uint32_t bits_at(const From* from) {
  return std::bit_cast<uint32_t>(simd::widen(*from));
}

// visit(lane, its vector of elements as bits of f32) for a row of neighbours; behind `lanes` are zeros. What is written
// past `width` is overwritten by the next row.
template <class From, class Visit>
void for_row(int64_t lanes, int64_t width, bool may_read_on, Visit visit) {
  const int64_t whole = lanes / kSide * kSide;
  for (int64_t j = 0; j < whole; j += kSide) visit(j, [](const From* p) { return bits(Block::load(p)); });
  if (whole < lanes) {
    visit(whole,
          [&](const From* p) { return bits(may_read_on ? Block::load(p) : simd::load_part<float>(p, lanes - whole)); });
  }
  for (int64_t j = whole + (whole < lanes ? kSide : 0); j < width; j += kSide)
    visit(j, [](const From*) { return _mm256_setzero_si256(); });
}

// Lanes are neighbours in memory.
template <class Order, class From>
void pack_rows(const From* from, const PackSource& s, int64_t pairs, int64_t lanes, uint32_t* to, int64_t width) {
  for (int64_t p = 0; p < pairs; ++p, from += 2 * s.k_stride, to += Order::kRows * width) {
    const From *even = from, *odd = from + s.k_stride;
    for (const From* row : {even, odd}) {
      const char* ahead = reinterpret_cast<const char*>(row + kRowsAhead * s.k_stride);
      for (int64_t offset = 0; offset < lanes * static_cast<int64_t>(sizeof(From)); offset += 64)
        _mm_prefetch(ahead + offset, _MM_HINT_T1);
    }
    // The last row may end where memory does.
    const bool may_read_on = p + 1 < pairs && s.k_stride >= kSide;
    if constexpr (Order::kRows == 1) {
      for_row<From>(lanes, width, may_read_on, [&](int64_t j, auto load) {
        store(to + j, _mm256_or_si256(_mm256_srli_epi32(load(even + j), 16), load(odd + j)));
      });
    } else {
      for_row<From>(lanes, width, may_read_on, [&](int64_t j, auto load) { store(to + j, load(odd + j)); });
      for_row<From>(lanes, width, may_read_on, [&](int64_t j, auto load) { store(to + width + j, load(even + j)); });
    }
  }
}

// k are neighbours in memory: squares of pairs are transposed, as pack_columns() of gemm_pack.cpp does.
template <class Order, class From>
void pack_columns(const From* from, const PackSource& s, int64_t pairs, int64_t lanes, uint32_t* to, int64_t width) {
  for (int64_t j = (width - 1) / kSide * kSide; j >= 0; j -= kSide) {
    const From* row[kSide];
    for (int64_t i = 0; i < kSide; ++i) row[i] = from + std::min(j + i, lanes - 1) * s.lane_stride;
    constexpr auto kBytes = static_cast<int64_t>(sizeof(From));
    LinesAhead lines(from, next_group(width, kSide, j), kSide, s.lane_stride * kBytes, 2 * pairs * kBytes);
    for (int64_t next = 0; next < pairs; next += kSide) {
      lines.ask(2 * kSide * kSide * kBytes / 64);
      const int64_t p = std::min(next, pairs - kSide);  // the last square overlaps the one before
      Block::Vector square[kSide];
      for (int64_t i = 0; i < kSide; ++i) square[i] = _mm256_castsi256_ps(load_pairs(row[i] + 2 * p));
      Block::transpose(square);
      for (int64_t i = 0; i < kSide; ++i)
        Order::store_pairs(to + (p + i) * Order::kRows * width + j, width, bits(square[i]));
    }
  }
}

template <class Order, class From>
void pack_any_strides(const From* from, const PackSource& s, int64_t pairs, int64_t lanes, uint32_t* to,
                      int64_t width) {
  for (int64_t p = 0; p < pairs; ++p, from += 2 * s.k_stride, to += Order::kRows * width) {
    for (int64_t j = 0; j < lanes; ++j)
      Order::put(to + j, width, bits_at(from + j * s.lane_stride), bits_at(from + s.k_stride + j * s.lane_stride));
    for (int64_t j = lanes; j < width; ++j) Order::put(to + j, width, 0, 0);
  }
}

template <class Order, class From>
void pack_as(const PackSource& s, int64_t k, int64_t lanes, PackSide side, uint32_t* to, int64_t width) {
  const From* from = static_cast<const From*>(s.data);
  const int64_t pairs = k / 2;
  if (s.lane_stride == 1) pack_rows<Order>(from, s, pairs, lanes, to, width);
  else if (s.k_stride == 1 && pairs >= kSide) pack_columns<Order>(from, s, pairs, lanes, to, width);
  else pack_any_strides<Order>(from, s, pairs, lanes, to, width);
  if (k % 2 == 0) return;
  // The last element alone: even, beside the one whose product is the identity of a sum.
  const uint32_t odd = Order::kRows == 1 && side == PackSide::a ? uint32_t{1} << 31 : 0;
  from += (k - 1) * s.k_stride;
  to += pairs * Order::kRows * width;
  for (int64_t j = 0; j < width; ++j) {
    const uint32_t even = j < lanes ? bits_at(from + j * s.lane_stride) : 0;
    to[j] = Order::kRows == 1 ? even >> 16 | odd : even;
  }
}

}  // namespace

void pack_bf16(const PackSource& source, int64_t k, int64_t lanes, TileKind kind, PackSide side, void* packed,
               int64_t width) {
  uint32_t* to = static_cast<uint32_t*>(packed);
  const auto pack_from = [&]<class From>() {
    if (kind == TileKind::bf16_pairs) pack_as<Pairs, From>(source, k, lanes, side, to, width);
    else pack_as<OddFirst, From>(source, k, lanes, side, to, width);
  };
  if (source.dtype == DType::bf16) pack_from.template operator()<bfloat16>();
  else pack_from.template operator()<float>();
}

}  // namespace tutti::codegen
