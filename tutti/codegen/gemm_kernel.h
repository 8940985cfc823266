// GEMM micro-kernels: what the code generator compiles for a tile and how the compiled tile is called.
//
// A tile is `rows` x `vectors` registers of C. Its element (i, j) is the contraction of row i of A and column j of B in
// the order of a ContractionTree; the tile's shape decides only which elements are computed together, never their bits.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/codegen/kernel.h"

namespace tutti::codegen {

struct GemmKernelSpec {
  DType compute;    // f32 or f64: A, accumulators, C; i32: A and B are pairs of 16-bit integers, sums and C are i32
  DType b_storage;  // the dtype of B in memory; bf16 and f16 are widened when loaded
  int32_t rows;
  int32_t vectors;  // columns in registers

  std::string key() const;
  std::string name() const;
};

// Elements of `compute` in one register.
constexpr int32_t gemm_lanes(CpuTarget target, DType compute) {
  return (target == CpuTarget::avx512 ? 64 : 32) / static_cast<int32_t>(itemsize(compute));
}

// One tile over some leaves of the tree. A caller that walks k in chunks calls once per chunk with the same stack.
struct GemmTileCall {
  const void* a;  // [k][rows], packed
  const void* b;  // [k][columns], rows b_stride elements apart
  int64_t b_stride;
  void* c;  // [rows][columns], rows c_stride elements apart; written after the last leaf
  int64_t c_stride;
  void* stack;  // where the next pending tile goes: [rows][columns] dense, newest last
  const int32_t* leaf_lengths;  // 0: a leaf that is absent, -0.0
  const uint8_t* merges;
  int64_t leaves;   // in this call, at least one
  int64_t is_last;  // 1 when the final leaf of this call is the tree's final leaf: C is written
};

using GemmTileEntry = void (*)(const GemmTileCall*);

// The compiled tile: from memory, else from disk, else compiled. Any thread.
GemmTileEntry gemm_tile_for(const GemmKernelSpec& spec, CpuTarget target);

}  // namespace tutti::codegen
