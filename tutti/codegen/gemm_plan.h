// How one GEMM is cut into tiles. Private to gemm.cpp.
//
// Rows are cut into strips, columns into panels, k into chunks of whole leaves. A task packs a chunk of its panel of B
// and runs down the strips of A, which was packed before; the panel's chunk stays in the second-level cache meanwhile.
#pragma once

#include <cstdint>
#include <vector>

#include "tutti/codegen/contraction_tree.h"
#include "tutti/codegen/gemm_cut.h"
#include "tutti/codegen/gemm_kernel.h"

namespace tutti::codegen {

struct ContractionChunk {
  int64_t first_leaf, leaves;
  int64_t first_k, length;
  int64_t pending;  // partial tiles on the stack before it
};

// Whole leaves, together at most `longest` long unless one leaf is longer.
std::vector<ContractionChunk> cut_into_chunks(const ContractionTree& tree, int64_t longest);

struct GemmPlan {
  // `cut` must fit the problem, as usual_cut() and the candidates of gemm_choice.h do.
  GemmPlan(const GemmProblem& problem, const ContractionTree& tree, const GemmCut& cut);

  GemmProblem problem;  // data pointers of batch element 0
  bool transposed;      // against the one that was asked for
  const ContractionTree& tree;
  int32_t depth;
  int32_t lanes;
  bool b_in_place;   // whole panels of B are read in place
  EvenSplit strips;  // of rows
  EvenSplit panels;  // of registers of columns
  std::vector<ContractionChunk> chunks;
  int64_t tasks_per_thread;  // wanted, when panels and strips allow it

  int64_t panel_columns(int64_t panel) const;  // that exist; the tile computes panels.size(panel) * lanes
  int64_t largest_tile() const { return strips.largest() * panels.largest() * lanes; }
  int64_t longest_chunk() const;
};

// Computes the plan's problem, all elements of its batch. In gemm_run.cpp. producer: of A as it is in the plan, which must not
// be transposed then.
void run_gemm(const GemmPlan& plan, ThreadPool& pool, const GemmConsumer* consumer, const GemmProducer* producer = nullptr);

}  // namespace tutti::codegen
