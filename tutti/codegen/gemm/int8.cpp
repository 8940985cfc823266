#include "tutti/codegen/gemm/int8.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/codegen/gemm/plan.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// The operand as rows of k + 1 elements, the last one 0; `lanes` are rows of A or columns of B.
std::vector<int8_t> with_even_k(const void* data, int64_t lanes, int64_t k, int64_t lane_stride, int64_t k_stride) {
  std::vector<int8_t> rows(static_cast<size_t>(lanes * (k + 1)), 0);
  const int8_t* from = static_cast<const int8_t*>(data);
  for (int64_t i = 0; i < lanes; ++i, from += lane_stride) {
    int8_t* to = rows.data() + i * (k + 1);
    if (k_stride == 1) std::copy_n(from, k, to);
    else
      for (int64_t p = 0; p < k; ++p) to[p] = from[p * k_stride];
  }
  return rows;
}

}  // namespace

void int8_gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c,
               const GemmOptions& options) {
  TUTTI_CHECK(m >= 0 && n >= 0 && k >= 0, "int8_gemm: m = {}, n = {}, k = {}; sizes must not be negative", m, n, k);
  TUTTI_CHECK(a.dtype == DType::i8 && b.dtype == DType::i8 && c.dtype == DType::i32,
              "int8_gemm: a is {}, b is {}, c is {}; expected i8, i8 and i32", name_of(a.dtype), name_of(b.dtype),
              name_of(c.dtype));
  TUTTI_CHECK(options.consumer == nullptr && (c.data != nullptr || m == 0 || n == 0),
              "int8_gemm: c needs memory, and nobody else takes its blocks");
  if (m == 0 || n == 0) return;
  if (k == 0) {
    for (int64_t i = 0; i < m; ++i) std::fill_n(static_cast<int32_t*>(c.data) + i * c.row_stride, n, 0);
    return;
  }
  if (k % 2 != 0) {
    const std::vector<int8_t> rows = with_even_k(a.data, m, k, a.row_stride, a.column_stride);
    const std::vector<int8_t> columns = with_even_k(b.data, n, k, b.column_stride, b.row_stride);
    return int8_gemm(m, n, k + 1, {rows.data(), DType::i8, k + 1, 1}, {columns.data(), DType::i8, 1, k + 1}, c,
                     options);
  }
  // From here on k counts pairs.
  const GemmOperand pairs_a{a.data, a.dtype, a.row_stride, 2 * a.column_stride},
      pairs_b{b.data, b.dtype, 2 * b.row_stride, b.column_stride};
  const GemmProblem problem{m, n,  k / 2,      pairs_a,       pairs_b, c.data, c.dtype, c.row_stride,
                            1, {}, DType::i32, options.target};
  const ContractionTree tree = ContractionTree::halving(k / 2, kContractionLeaf);
  run_gemm(GemmPlan(problem, tree, usual_cut(problem)), options.pool ? *options.pool : ThreadPool::current(), nullptr);
}

}  // namespace tutti::codegen
