#include "tutti/codegen/gemm_plan.h"

#include <algorithm>
#include <utility>

namespace tutti::codegen {
namespace {

// Bytes of one column of a chunk of B: panels of 48 columns then take a tenth of a second-level cache of 1 MiB.
constexpr int64_t kChunkBytes = 2048;
// Up to this many rows B is read a few times only: copying it first would cost more than it saves.
constexpr int64_t kFewRows = 32;
constexpr int64_t kWidestTile = 8;

int64_t most_rows(CpuTarget target) {
  return target == CpuTarget::avx512 ? 8 : 6;
}

// As many as leave registers for a row of B and one element of A.
int64_t most_vectors(CpuTarget target, int64_t rows) {
  const int64_t registers = target == CpuTarget::avx512 ? 32 : 16;
  return std::min((registers - 2) / (rows + 1), kWidestTile);
}

int64_t rounded_up(int64_t n, int64_t unit) {
  return (n + unit - 1) / unit * unit;
}

}  // namespace

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

GemmProblem transposed(const GemmProblem& p) {
  GemmProblem t = p;
  std::swap(t.m, t.n);
  t.a = {p.b.data, p.b.dtype, p.b.column_stride, p.b.row_stride};
  t.b = {p.a.data, p.a.dtype, p.a.column_stride, p.a.row_stride};
  std::swap(t.c_row_stride, t.c_column_stride);
  std::swap(t.batch.a_stride, t.batch.b_stride);
  return t;
}

GemmPlan::GemmPlan(const GemmProblem& p, const ContractionTree& contraction)
    : problem(p), tree(contraction), depth(contraction.depth()), lanes(gemm_lanes(p.target, p.compute)) {
  // Fewer columns than lanes leave lanes idle; rows are cheaper to have few of. a*b is b*a: the bits stay.
  if (p.n < lanes && p.m * rounded_up(p.n, lanes) > p.n * rounded_up(p.m, lanes)) problem = transposed(p);
  const GemmOperand& b = problem.b;
  strips = EvenSplit::at_most(problem.m, most_rows(problem.target));
  b_in_place = problem.m <= kFewRows && b.column_stride == 1 && compute_dtype(b.dtype) == problem.compute;
  const int64_t rows = b_in_place ? strips.largest() : most_rows(problem.target);
  panels = EvenSplit::at_most((problem.n + lanes - 1) / lanes, most_vectors(problem.target, rows));
  chunks = cut_into_chunks(tree, kChunkBytes / itemsize(problem.compute));
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
