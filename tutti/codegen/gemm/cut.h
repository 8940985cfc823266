// The choices that are free in a GEMM: they decide its speed and never a bit of its result. Private to the GEMM.
#pragma once

#include <cstdint>

#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/gemm.h"
#include "tutti/codegen/gemm/tile_kind.h"
#include "tutti/core/even_split.h"

namespace tutti::codegen {

// A GEMM with C of any strides, so that it can be solved as its transpose.
struct GemmProblem {
  int64_t m, n, k;
  GemmOperand a, b;
  void* c;
  DType c_dtype;
  int64_t c_row_stride, c_column_stride;
  GemmBatch batch;
  DType compute;  // f64, f32, or bf16 for two operands of bf16, whose sums are f32 (numerics contract, N3); of integers
                  // i32 or i8, whose sums are i32
  CpuTarget target;

  TileKind kind() const { return tile_kind(compute, target); }
};

GemmOperand transposed_operand(const GemmOperand& operand);
GemmProblem transposed(const GemmProblem& p);

struct GemmCut {
  bool transposed;       // solve the transposed problem; the other fields are about the one that is solved
  bool b_in_place;       // whole panels of B are read in place, instead of being packed first
  uint8_t rows;          // at most, of a tile
  uint8_t vectors;       // at most, of a tile: registers of columns
  uint16_t chunk_bytes;  // of one column of B that a panel walks at a time: the chunk stays in the second-level cache
  uint8_t tasks_per_thread;  // tasks that are wanted where panels alone are too few to share out

  bool operator==(const GemmCut&) const = default;
};

// The cut that gemm() uses without a measurement.
GemmCut usual_cut(const GemmProblem& p);

// The maximum number of rows of a tile, and of registers of columns for a tile with `rows` rows.
int64_t most_rows(CpuTarget target);
int64_t most_vectors(CpuTarget target, int64_t rows);

// Whether rows of an operand with contiguous columns are a multiple of 4 KiB apart. They then map to few sets of the
// first-level cache, where the prefetched pieces of rows that a tile reads would evict each other.
bool rows_meet_in_cache(const GemmOperand& operand);
// Up to how many rows of A a B with contiguous columns is read as it is: copying it first pays from the next row on.
// Narrow tiles read rows that meet in the cache so often that a few rows of A stream them instead (stream.h).
int64_t most_rows_in_place(const GemmOperand& b, CpuTarget target);

// Whether tiles may read B, or the B of the transposed problem, in place.
bool can_stay_in_place(const GemmProblem& p, bool transposed);

}  // namespace tutti::codegen
