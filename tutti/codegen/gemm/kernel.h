// GEMM micro-kernels: what the code generator compiles for a tile and how the compiled tile is called.
//
// A tile is `rows` x `vectors` registers of C. Its element (i, j) is the contraction of row i of A and column j of B in
// the order of a ContractionTree; the tile's shape decides only which elements are computed together, never their bits.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/tile_kind.h"

namespace tutti::codegen {

struct GemmKernelSpec {
  TileKind kind;
  DType b_storage;  // packed_dtype(kind), or the dtype of a B that is read in place: bf16 and f16 for f32, bf16 for the
                    // kinds of bf16
  int32_t rows;
  int32_t vectors;  // columns in registers

  std::string key() const;
  std::string name() const;
};

// One tile over some leaves of the tree. A caller that walks k in chunks calls once per chunk with the same stack.
struct GemmTileCall {
  const void* a;  // [items][rows], packed
  const void* b;  // [items][columns], or in place [k][columns]; rows b_stride elements of b_storage apart
  int64_t b_stride;
  void* c;  // [rows][columns], rows c_stride elements apart; written after the last leaf
  int64_t c_stride;
  void* stack;                  // where the next pending tile goes: [rows][columns] dense, newest last
  const int32_t* leaf_lengths;  // in k, each with items of its own; 0: a leaf that is absent, -0.0
  const uint8_t* merges;
  int64_t leaves;         // in this call, at least one
  int64_t is_last;        // 1 when the final leaf of this call is the tree's final leaf: C is written
  const int32_t* excess;  // [columns], int8_quads: taken off what is written
};

using GemmTileEntry = void (*)(const GemmTileCall*);

// The compiled tile: from memory, else from disk, else compiled. Any thread.
GemmTileEntry gemm_tile_for(const GemmKernelSpec& spec, CpuTarget target);

}  // namespace tutti::codegen
