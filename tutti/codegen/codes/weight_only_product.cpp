#include "tutti/codegen/codes/weight_only_product.h"

#include <algorithm>

#include "tutti/codegen/codes/decode_lines.h"
#include "tutti/codegen/codes/few_rows.h"
#include "tutti/codegen/gemm/decoded.h"
#include "tutti/codegen/gemm/pack.h"
#include "tutti/codegen/gemm/simd.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Multiply-adds, and numbers, below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 16, kWorthWidening = int64_t{1} << 15;

template <class T>
void widen(const T* x, int64_t count, float* to) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) _mm256_storeu_ps(to + i, simd::Block<float>::load(x + i));
  for (; i < count; ++i) to[i] = to_float(x[i]);
}

// The rows of x as f32, in place or in memory of the workspace.
const float* rows_of(const WeightOnlyProduct& p, ThreadPool& pool) {
  if (p.x_dtype == DType::f32) return static_cast<const float*>(p.x);
  auto* rows = reinterpret_cast<float*>(gemm_workspaces().a.reserve(p.m * p.k * 4));
  pool.parallel_for(p.m * p.k, kWorthWidening, [&](int64_t begin, int64_t end) {
    if (p.x_dtype == DType::bf16) widen(static_cast<const bfloat16*>(p.x) + begin, end - begin, rows + begin);
    else widen(static_cast<const float16*>(p.x) + begin, end - begin, rows + begin);
  });
  return rows;
}

// The codes of some columns, and their kind.
codes::CodeColumns columns_of(const WeightOnlyProduct& p, int64_t first, int64_t columns, bool has_more) {
  return {reinterpret_cast<const uint8_t*>(p.w) + first * p.w_stride, p.w_stride, columns,
          p.has_nibbles ? p.k / 2 : p.k, has_more};
}
// Calls fn(lanes) for the codes [begin, end) of k of some columns, of which a product takes `width`. The numbers of
// their groups are brought side by side in memory of this thread.
template <class Fn>
void with_lanes(const WeightOnlyProduct& p, int64_t first, int64_t columns, int64_t width, int64_t begin, int64_t end,
                Fn fn) {
  if (!p.has_nibbles) return fn(codes::ByteLanes());
  const int64_t groups = p.k == 0 ? 0 : p.k / p.group, first_group = begin == end ? 0 : begin / p.group;
  const int64_t count = begin == end ? 0 : (end - 1) / p.group + 1 - first_group, size = count * width + kPackSlack;
  auto* numbers = reinterpret_cast<float*>(gemm_workspaces().produced.reserve(2 * size * 4));
  const auto bring = [&](const float* of_groups, float* to) {
    pack({of_groups + first * groups + first_group, DType::f32, 1, groups}, count, columns, DType::f32, to, width);
  };
  bring(p.scale.data, numbers);
  bring(p.minimum, numbers + size);
  fn(codes::NibbleLanes{numbers, numbers + size, p.group / codes::NibbleLanes::kPerWord, width, first_group});
}

// Scales the totals of a block in place and stores them.
void store(const WeightOnlyProduct& p, const GemmBlock& block) {
  auto* const totals = static_cast<float*>(block.data);
  for (int64_t i = 0; i < block.rows && !p.has_nibbles; ++i) {
    float* const row = totals + i * block.row_stride;
    const float* const scale = p.scale.data + block.first_column * p.scale.stride;
    if (p.scale.stride == 0)
      for (int64_t j = 0; j < block.columns; ++j) row[j] *= *scale;
    else
      for (int64_t j = 0; j < block.columns; ++j) row[j] *= scale[j];
  }
  auto* const y = static_cast<std::byte*>(p.y) + (block.first_row * p.n + block.first_column) * itemsize(p.y_dtype);
  store_tile(totals, DType::f32, block.row_stride, block.rows, block.columns, y, p.y_dtype, p.n, 1);
}

// The product of up to most_few_rows() rows.
void multiply_few(const WeightOnlyProduct& p, const ContractionTree& tree, ThreadPool& pool) {
  const codes::FewRows x = codes::few_rows(rows_of(p, pool), p.k, p.m, p.k, gemm_workspaces().b);
  const int64_t width = codes::few_columns(p.m);
  pool.parallel_for(
      (p.n + width - 1) / width, kWorthATask / (p.m * (p.k + 1) * width) + 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t first = i * width, columns = std::min(width, p.n - first);
          float totals[codes::kWideRows * codes::kMostFewColumns];
          with_lanes(p, first, columns, width, 0, p.k, [&](const auto& lanes) {
            codes::multiply_few(columns_of(p, first, columns, first + 2 * width <= p.n), lanes, x, tree, totals);
          });
          store(p, {0, p.m, first, columns, totals, width});
        }
      });
}

void multiply_many(const WeightOnlyProduct& p, const ContractionTree& tree, ThreadPool& pool) {
  const auto decode = [&](const GemmDecodedBlock& block) {
    with_lanes(p, block.first_column, block.columns, block.width, block.first_k, block.first_k + block.length,
               [&](const auto& lanes) {
                 codes::decode_block(columns_of(p, block.first_column, block.columns, false), lanes, block);
               });
  };
  decoded_gemm(
      {p.m, p.n, p.k, {p.x, p.x_dtype, p.k, 1}, tree}, decode, [&](const GemmBlock& block) { store(p, block); }, pool);
}

}  // namespace

void weight_only_product(const WeightOnlyProduct& p, ThreadPool& pool) {
  TUTTI_ASSERT(!p.has_nibbles || p.k == 0 || (p.group > 0 && p.group % 8 == 0 && p.k % p.group == 0),
               "weight_only_product: groups of {} in {}", p.group, p.k);
  const ContractionTree tree = ContractionTree::halving(p.k);
  TUTTI_ASSERT(tree.depth() <= codes::kMostPending, "weight_only_product: a tree of depth {}", tree.depth());
  const int64_t few = codes::most_few_rows();
  if (p.m > few && p.k > 0) return multiply_many(p, tree, pool);
  for (int64_t first = 0; first < p.m; first += few) {
    WeightOnlyProduct part = p;
    part.m = std::min(few, p.m - first);
    part.x = static_cast<const std::byte*>(p.x) + first * p.k * itemsize(p.x_dtype);
    part.y = static_cast<std::byte*>(p.y) + first * p.n * itemsize(p.y_dtype);
    multiply_few(part, tree, pool);
  }
}

}  // namespace tutti::codegen
