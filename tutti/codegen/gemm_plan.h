// How one GEMM is cut into tiles. Private to gemm.cpp.
//
// Rows are cut into strips, columns into panels, k into chunks of whole leaves. A task packs a chunk of its panel of B
// and runs down the strips of A, which was packed before; the panel's chunk stays in the second-level cache meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/codegen/contraction_tree.h"
#include "tutti/codegen/gemm.h"
#include "tutti/codegen/gemm_kernel.h"

namespace tutti::codegen {

// n items in `parts` neighbouring groups whose sizes differ by one at most, larger ones first.
struct EvenSplit {
  int64_t parts, smaller, larger_count;

  static EvenSplit at_most(int64_t n, int64_t largest) {
    const int64_t parts = (n + largest - 1) / largest;
    return {parts, n / parts, n % parts};
  }
  int64_t begin(int64_t part) const { return part * smaller + (part < larger_count ? part : larger_count); }
  int64_t size(int64_t part) const { return smaller + (part < larger_count ? 1 : 0); }
  int64_t largest() const { return smaller + (larger_count > 0 ? 1 : 0); }
};

struct ContractionChunk {
  int64_t first_leaf, leaves;
  int64_t first_k, length;
  int64_t pending;  // partial tiles on the stack before it
};

// Whole leaves, together at most `longest` long unless one leaf is longer.
std::vector<ContractionChunk> cut_into_chunks(const ContractionTree& tree, int64_t longest);

// A GEMM with C of any strides: a narrow problem is solved as its transpose.
struct GemmProblem {
  int64_t m, n, k;
  GemmOperand a, b;
  void* c;
  DType c_dtype;
  int64_t c_row_stride, c_column_stride;
  GemmBatch batch;
  DType compute;
  CpuTarget target;
};

GemmProblem transposed(const GemmProblem& p);

struct GemmPlan {
  GemmPlan(const GemmProblem& problem, const ContractionTree& tree);

  GemmProblem problem;  // data pointers of batch element 0
  const ContractionTree& tree;
  int32_t depth;
  int32_t lanes;
  bool b_in_place;   // whole panels of B are read where they lie
  EvenSplit strips;  // of rows
  EvenSplit panels;  // of registers of columns
  std::vector<ContractionChunk> chunks;

  int64_t panel_columns(int64_t panel) const;  // that exist; the tile computes panels.size(panel) * lanes
  int64_t largest_tile() const { return strips.largest() * panels.largest() * lanes; }
  int64_t longest_chunk() const;
};

}  // namespace tutti::codegen
