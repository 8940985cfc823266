#include "tutti/codegen/gemm/int8.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "tutti/codegen/gemm/plan.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// The operand as rows of `padded` elements, the last ones 0; `lanes` are rows of A or columns of B.
std::vector<int8_t> padded_lanes(const void* data, int64_t lanes, int64_t k, int64_t padded, int64_t lane_stride,
                                 int64_t k_stride) {
  std::vector<int8_t> rows(static_cast<size_t>(lanes * padded), 0);
  if (k == 0) return rows;
  const int8_t* from = static_cast<const int8_t*>(data);
  for (int64_t i = 0; i < lanes; ++i, from += lane_stride) {
    int8_t* to = rows.data() + i * padded;
    if (k_stride == 1) std::copy_n(from, k, to);
    else
      for (int64_t p = 0; p < k; ++p) to[p] = from[p * k_stride];
  }
  return rows;
}

// Multiply-adds below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 16;

// 128 times the sum of each column, modulo 2^32; `all` columns, of which n exist.
std::vector<int32_t> excess_of(const GemmOperand& b, int64_t k, int64_t n, int64_t all, ThreadPool& pool) {
  std::vector<int32_t> excess(static_cast<size_t>(all), 0);
  const auto* from = static_cast<const int8_t*>(b.data);
  pool.parallel_for(n, kWorthATask / k + 1, [&](int64_t begin, int64_t end) {
    int32_t* const to = excess.data();
    if (b.row_stride == 1) {
      for (int64_t j = begin; j < end; ++j) {
        const int8_t* column = from + j * b.column_stride;
        uint32_t sum = 0;
        for (int64_t p = 0; p < k; ++p) sum += static_cast<uint32_t>(int32_t{column[p]});
        to[j] = static_cast<int32_t>(sum * 128);
      }
      return;
    }
    for (int64_t p = 0; p < k; ++p) {
      const int8_t* row = from + p * b.row_stride;
      for (int64_t j = begin; j < end; ++j)
        to[j] = static_cast<int32_t>(static_cast<uint32_t>(to[j]) +
                                     128 * static_cast<uint32_t>(int32_t{row[j * b.column_stride]}));
    }
  });
  return excess;
}

}  // namespace

void int8_gemm(int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b, const GemmResult& c,
               const GemmOptions& options) {
  int8_gemm_over(int8_items(options.target), m, n, k, a, b, c, options);
}

void int8_gemm_over(Int8Items items, int64_t m, int64_t n, int64_t k, const GemmOperand& a, const GemmOperand& b,
                    const GemmResult& c, const GemmOptions& options) {
  TUTTI_CHECK(m >= 0 && n >= 0 && k >= 0, "int8_gemm: m = {}, n = {}, k = {}; sizes must not be negative", m, n, k);
  TUTTI_CHECK(a.dtype == DType::i8 && b.dtype == DType::i8 && c.dtype == DType::i32,
              "int8_gemm: a is {}, b is {}, c is {}; expected i8, i8 and i32", name_of(a.dtype), name_of(b.dtype),
              name_of(c.dtype));
  TUTTI_CHECK(options.producer == nullptr, "int8_gemm: its operands are not produced");
  TUTTI_CHECK(options.consumer != nullptr || c.data != nullptr || m == 0 || n == 0,
              "int8_gemm: c needs memory, or a consumer that takes its blocks");
  if (m == 0 || n == 0) return;
  const int64_t together = integers_of(items), padded = std::max<int64_t>((k + together - 1) / together, 1) * together;
  if (k != padded) {
    const std::vector<int8_t> rows = padded_lanes(a.data, m, k, padded, a.row_stride, a.column_stride);
    const std::vector<int8_t> columns = padded_lanes(b.data, n, k, padded, b.column_stride, b.row_stride);
    return int8_gemm_over(items, m, n, padded, {rows.data(), DType::i8, padded, 1},
                          {columns.data(), DType::i8, 1, padded}, c, options);
  }
  ThreadPool& pool = options.pool ? *options.pool : ThreadPool::current();
  // From here on k counts items.
  const GemmOperand items_a{a.data, a.dtype, a.row_stride, together * a.column_stride},
      items_b{b.data, b.dtype, together * b.row_stride, b.column_stride};
  const DType compute = items == Int8Items::quads ? DType::i8 : DType::i32;
  const GemmProblem problem{m, n,  k / together, items_a,       items_b, c.data, c.dtype, c.row_stride,
                            1, {}, compute,      options.target};
  const ContractionTree tree = ContractionTree::halving(k / together, kContractionLeaf);
  GemmPlan plan(problem, tree, usual_cut(problem));
  std::vector<int32_t> excess;
  if (items == Int8Items::quads) {
    GemmOperand columns = plan.transposed ? transposed_operand(a) : b;
    excess = excess_of(columns, k, plan.problem.n, plan.panels.begin(plan.panels.parts) * plan.lanes, pool);
    plan.excess = excess.data();
  }
  run_gemm(plan, pool, options.consumer);
}

}  // namespace tutti::codegen
