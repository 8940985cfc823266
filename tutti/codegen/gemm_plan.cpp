#include "tutti/codegen/gemm_plan.h"

#include <algorithm>
#include <utility>

namespace tutti::codegen {
std::vector<ContractionChunk> cut_into_chunks(const ContractionTree& tree, int64_t longest) {
  std::vector<ContractionChunk> chunks;
  int64_t k = 0, pending = 0;
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    const int64_t length = tree.leaf_lengths[leaf];
    if (chunks.empty() || chunks.back().length + length > longest)
      chunks.push_back({static_cast<int64_t>(leaf), 0, k, 0, pending});
    ++chunks.back().leaves;
    chunks.back().length += length;
    k += length;
    pending += 1 - tree.merges[leaf];
  }
  return chunks;
}

GemmPlan::GemmPlan(const GemmProblem& p, const ContractionTree& contraction, const GemmCut& cut)
    : problem(cut.transposed ? codegen::transposed(p) : p),
      transposed(cut.transposed),
      tree(contraction),
      depth(contraction.depth()),
      lanes(gemm_lanes(p.target, p.compute)),
      b_in_place(cut.b_in_place),
      strips(EvenSplit::at_most(problem.m, cut.rows)),
      panels(EvenSplit::at_most((problem.n + lanes - 1) / lanes, cut.vectors)),
      chunks(cut_into_chunks(contraction, cut.chunk_bytes / itemsize(p.compute))),
      tasks_per_thread(cut.tasks_per_thread) {}

GemmPlan::GemmPlan(const GemmProblem& p, const ContractionTree& contraction, const GemmCut& cut, GemmSources from) : GemmPlan(p, contraction, cut) {
  sources = std::move(from);
  if (transposed) {
    for (GemmSource& s : sources.sources) s = {transposed_operand(s.b), transposed_operand(s.a), s.k};
  }
  size_t piece = 0;
  for (const ContractionChunk& chunk : chunks) {
    first_piece.push_back(piece);
    for (int64_t length = 0; length < chunk.length; ++piece) length += sources.pieces[piece].length;
  }
  first_piece.push_back(piece);
}

int64_t GemmPlan::panel_columns(int64_t panel) const {
  return std::min(panels.size(panel) * lanes, problem.n - panels.begin(panel) * lanes);
}

int64_t GemmPlan::longest_chunk() const {
  int64_t longest = 0;
  for (const ContractionChunk& chunk : chunks) longest = std::max(longest, chunk.length);
  return longest;
}

}  // namespace tutti::codegen
