#include "tutti/codegen/gemm/decoded.h"

#include "tutti/codegen/gemm/cut.h"
#include "tutti/codegen/gemm/plan.h"
#include "tutti/core/error.h"

namespace tutti::codegen {
namespace {

// As usual_cut() has it, for a B that is packed and cannot become A. Few rows have wide panels.
GemmCut cut_of(const GemmProblem& p) {
  GemmCut cut = usual_cut(p);
  const int64_t most = most_rows(p.target);
  cut.transposed = cut.b_in_place = false;
  cut.rows = static_cast<uint8_t>(most);
  cut.vectors = static_cast<uint8_t>(most_vectors(p.target, EvenSplit::at_most(p.m, most).largest()));
  return cut;
}

}  // namespace

void decoded_gemm(const DecodedProduct& p, const GemmDecoder& decoder, const GemmConsumer& consumer, ThreadPool& pool) {
  if (p.m == 0 || p.n == 0) return;
  TUTTI_ASSERT(p.k > 0 && p.tree.k() == p.k, "decoded_gemm: a tree of {} for k = {}", p.tree.k(), p.k);
  const GemmOperand b{nullptr, DType::f32, 1, p.k};
  const GemmProblem problem{p.m, p.n, p.k, p.a, b, nullptr, DType::f32, p.n, 1, {}, DType::f32, p.target};
  GemmPlan plan(problem, p.tree, cut_of(problem));
  plan.decoder = &decoder;
  run_gemm(plan, pool, &consumer);
}

}  // namespace tutti::codegen
