// The arithmetic of the tiles of a GEMM, and how their operands are packed.
#pragma once

#include <cstdint>
#include <span>

#include "tutti/codegen/cpu_target.h"
#include "tutti/core/dtype.h"

namespace tutti::codegen {

// The dtypes of a tile's operands and sums, and the items of packed memory.
enum class TileKind : uint8_t {
  f64,
  f32,
  // Two operands of bf16 (numerics contract, N3) without dot units: items are f32, of each pair of a leaf the odd
  // element first; denormals of chains are read and written as zero.
  bf16_chain,
  // The same chain on dot units: an item is a pair of bf16, the even element low.
  bf16_pairs,
  // An item is a pair of 16-bit integers; sums are i32, modulo 2^32.
  int16_pairs,
  // An item is four 8-bit integers, those of A larger by 128 and without a sign, as dot units multiply them with signed
  // ones of B; so the sums of a column are too large by 128 times the sum of that column of B, which the tile takes
  // off.
  int8_quads,
};
inline constexpr int kNumTileKinds = 6;

// `compute`: f64, f32, bf16 for two operands of bf16, i32 for pairs of integers, i8 for four of them at once.
constexpr TileKind tile_kind(DType compute, CpuTarget target) {
  switch (compute) {
    case DType::f64:
      return TileKind::f64;
    case DType::bf16:
      return target >= CpuTarget::avx512bf16 ? TileKind::bf16_pairs : TileKind::bf16_chain;
    case DType::i32:
      return TileKind::int16_pairs;
    case DType::i8:
      return TileKind::int8_quads;
    default:
      return TileKind::f32;
  }
}

constexpr bool is_integer(TileKind kind) { return kind == TileKind::int16_pairs || kind == TileKind::int8_quads; }
// The dtype of sums and of C.
constexpr DType sum_dtype(TileKind kind) {
  return kind == TileKind::f64 ? DType::f64 : is_integer(kind) ? DType::i32 : DType::f32;
}
// The dtype in which packed items are stored; i32 stands for a pair, and for four integers.
constexpr DType packed_dtype(TileKind kind) {
  return kind == TileKind::f64                                   ? DType::f64
         : kind == TileKind::f32 || kind == TileKind::bf16_chain ? DType::f32
                                                                 : DType::i32;
}
// Bytes of an item, and of an element of C.
constexpr int64_t item_bytes(TileKind kind) { return kind == TileKind::f64 ? 8 : 4; }
// Whether elements of a leaf are taken in pairs, so that a leaf has an order of its own in packed memory.
constexpr bool takes_pairs(TileKind kind) { return kind == TileKind::bf16_chain || kind == TileKind::bf16_pairs; }
// The number of items that hold `length` neighbouring k of a leaf.
constexpr int64_t items_of(TileKind kind, int64_t length) {
  return kind == TileKind::bf16_pairs ? (length + 1) / 2 : length;
}

// Calls visit(length) for neighbouring leaves, as many at once as have the same items together as one by one.
template <class Visit>
void for_each_even_run(TileKind kind, std::span<const int32_t> leaf_lengths, Visit&& visit) {
  int64_t length = 0;
  for (size_t leaf = 0; leaf < leaf_lengths.size(); ++leaf) {
    length += leaf_lengths[leaf];
    if (leaf + 1 < leaf_lengths.size() && (!takes_pairs(kind) || length % 2 == 0)) continue;
    visit(length);
    length = 0;
  }
}

// Elements of C in one register.
constexpr int32_t gemm_lanes(CpuTarget target, DType compute) {
  return (has_wide_registers(target) ? 64 : 32) / (compute == DType::f64 ? 8 : 4);
}

}  // namespace tutti::codegen
