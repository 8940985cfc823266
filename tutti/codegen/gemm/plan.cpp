#include "tutti/codegen/gemm/plan.h"

#include <algorithm>
#include <utility>

namespace tutti::codegen {
std::vector<ContractionChunk> cut_into_chunks(const ContractionTree& tree, int64_t most_items, TileKind kind) {
  std::vector<ContractionChunk> chunks;
  int64_t k = 0, item = 0, pending = 0;
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    const int64_t length = tree.leaf_lengths[leaf], items = items_of(kind, length);
    if (chunks.empty() || chunks.back().items + items > most_items)
      chunks.push_back({static_cast<int64_t>(leaf), 0, k, 0, item, 0, pending});
    ++chunks.back().leaves;
    chunks.back().length += length;
    chunks.back().items += items;
    k += length;
    item += items;
    pending += 1 - tree.merges[leaf];
  }
  return chunks;
}

GemmPlan::GemmPlan(const GemmProblem& p, const ContractionTree& contraction, const GemmCut& cut)
    : problem(cut.transposed ? codegen::transposed(p) : p),
      transposed(cut.transposed),
      kind(p.kind()),
      tree(contraction),
      depth(contraction.depth()),
      lanes(gemm_lanes(p.target, p.compute)),
      b_in_place(cut.b_in_place),
      strips(EvenSplit::at_most(problem.m, cut.rows)),
      panels(EvenSplit::at_most((problem.n + lanes - 1) / lanes, cut.vectors)),
      chunks(cut_into_chunks(contraction, cut.chunk_bytes / item_bytes(kind), kind)),
      tasks_per_thread(cut.tasks_per_thread),
      items(chunks.back().first_item + chunks.back().items) {}

GemmPlan::GemmPlan(const GemmProblem& p, const ContractionTree& contraction, const GemmCut& cut, GemmSources from)
    : GemmPlan(p, contraction, cut) {
  sources = std::move(from);
  if (transposed) {
    for (GemmSource& s : sources.sources) s = {transposed_operand(s.b), transposed_operand(s.a), s.k};
  }
  size_t piece = 0;
  for (const ContractionChunk& chunk : chunks) {
    first_piece.push_back(piece);
    for (int64_t taken = 0; taken < chunk.items; ++piece) taken += items_of(kind, sources.pieces[piece].length);
  }
  first_piece.push_back(piece);
}

int64_t GemmPlan::panel_columns(int64_t panel) const {
  return std::min(panels.size(panel) * lanes, problem.n - panels.begin(panel) * lanes);
}

int64_t GemmPlan::most_chunk_items() const {
  int64_t most = 0;
  for (const ContractionChunk& chunk : chunks) most = std::max(most, chunk.items);
  return most;
}

}  // namespace tutti::codegen
