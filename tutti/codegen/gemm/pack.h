// Data movement around the GEMM tiles: strips of A and panels of B into the order the tiles read, tiles into C.
//
// Plain loops ahead of time, not generated: they are bound by memory and take a few percent of a GEMM whose sides are
// 64 or more. Conversions are exact (widening) or round to nearest even once (storing), so they cannot change a result.
#pragma once

#include <cstdint>
#include <span>

#include "tutti/codegen/gemm/tile_kind.h"

namespace tutti::codegen {

// A rectangle of k x lanes: element (p, lane) is data[p * k_stride + lane * lane_stride].
struct PackSource {
  const void* data;
  DType dtype;  // f64, f32, bf16, f16, or i8 for several at once
  int64_t k_stride, lane_stride;
};

// The number of elements that pack() may write behind the packed rectangle.
inline constexpr int64_t kPackSlack = 8;

// packed[p * width + lane] = element (p, lane) widened to `compute` (f32 or f64), for p < k and lane < lanes <= width.
// Lanes from `lanes` to `width` get some finite or copied value; up to kPackSlack elements behind the end are written.
void pack(const PackSource& source, int64_t k, int64_t lanes, DType compute, void* packed, int64_t width);

// Which operand of a tile is packed: where a leaf has a last element without a partner, the products that fill its pair
// are -0.0.
enum class PackSide : uint8_t { a, b };

// The same for tiles: items_of(kind, k) rows of items. k: at most a leaf, or whole leaves that have an even length (the
// last one any). int16_pairs and int8_quads: k counts pairs of i8, or four of them, see pack_int8.h.
void pack(const PackSource& source, int64_t k, int64_t lanes, TileKind kind, PackSide side, void* packed,
          int64_t width);
// Neighbouring leaves of any length, from the beginning of a leaf on.
void pack_leaves(const PackSource& source, std::span<const int32_t> leaf_lengths, int64_t lanes, TileKind kind,
                 PackSide side, void* packed, int64_t width);

// c(i, j) = tile[i * tile_stride + j], rounded to c_dtype (a narrow type through f32), for i < rows and j < columns.
void store_tile(const void* tile, DType compute, int64_t tile_stride, int64_t rows, int64_t columns, void* c,
                DType c_dtype, int64_t c_row_stride, int64_t c_column_stride);

}  // namespace tutti::codegen
