#include "tutti/codegen/codes/weight_only_product.h"

#include <algorithm>

#include "tutti/codegen/codes/few_rows.h"
#include "tutti/codegen/codes/value_panel.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Rows of x that share a pass over W.
constexpr int64_t kRowsAtOnce = 1024;
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

int64_t groups_of(const WeightOnlyProduct& p) { return p.has_nibbles && p.k > 0 ? p.k / p.group : 0; }

// The numbers of the groups of some columns, side by side: [groups][lanes]. Columns that are not there are 0.
void beside_each_other(const float* of_groups, int64_t groups, int64_t columns, int64_t lanes, float* to) {
  std::fill_n(to, groups * lanes, 0.0F);
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t g = 0; g < groups; ++g) to[g * lanes + j] = of_groups[j * groups + g];
}

// Columns of the product that are taken together.
class Strip {
 public:
  Strip(const WeightOnlyProduct& p, int64_t first, int64_t width)
      : p_(p), first_(first), width_(width), columns_(std::min(width, p.n - first)) {}

  codes::CodeColumns codes() const {
    return {reinterpret_cast<const uint8_t*>(p_.w) + first_ * p_.w_stride, p_.w_stride, columns_,
            p_.has_nibbles ? p_.k / 2 : p_.k, first_ + 2 * width_ <= p_.n};
  }
  // Calls fn(lanes) with the kind of codes; `memory` holds numbers_of_groups().
  template <class Fn>
  void with_lanes(float* memory, Fn fn) const {
    if (!p_.has_nibbles) return fn(codes::ByteLanes());
    const int64_t groups = groups_of(p_), all = groups * width_;
    beside_each_other(p_.scale.data + first_ * groups, groups, columns_, width_, memory);
    beside_each_other(p_.minimum + first_ * groups, groups, columns_, width_, memory + all);
    fn(codes::NibbleLanes{memory, memory + all, p_.group / codes::NibbleLanes::kPerWord, width_});
  }
  int64_t numbers_of_groups() const { return 2 * groups_of(p_) * width_; }
  // Eight totals of the columns from `offset` on.
  void store(int64_t row, int64_t offset, __m256 totals) const {
    float values[8];
    _mm256_storeu_ps(values, totals);
    const int64_t count = std::min<int64_t>(8, columns_ - offset), at = row * p_.n + first_ + offset;
    for (int64_t i = 0; i < count; ++i) {
      const float y = p_.has_nibbles ? values[i] : values[i] * p_.scale[first_ + offset + i];
      if (p_.y_dtype == DType::f32) static_cast<float*>(p_.y)[at + i] = y;
      else if (p_.y_dtype == DType::bf16) static_cast<bfloat16*>(p_.y)[at + i] = to_bfloat16(y);
      else static_cast<float16*>(p_.y)[at + i] = to_float16(y);
    }
  }

 private:
  const WeightOnlyProduct& p_;
  const int64_t first_, width_, columns_;
};

// The product of up to kRowsAtOnce rows.
void multiply_rows(const WeightOnlyProduct& p, const ContractionTree& tree, ThreadPool& pool) {
  const float* x = rows_of(p, pool);
  const bool is_few = p.m <= codes::kFewRows;
  const int64_t width = is_few ? codes::few_columns(p.m) : codes::kValueColumns;
  pool.parallel_for(
      (p.n + width - 1) / width, kWorthATask / (p.m * (p.k + 1) * width) + 1, [&](int64_t begin, int64_t end) {
        const int64_t of_panel = is_few ? 0 : p.k * width, of_groups = Strip(p, 0, width).numbers_of_groups();
        auto* panel = reinterpret_cast<float*>(gemm_workspaces().b.reserve((of_panel + of_groups) * 4));
        for (int64_t i = begin; i < end; ++i) {
          const Strip strip(p, i * width, width);
          strip.with_lanes(panel + of_panel, [&](const auto& lanes) {
            if (is_few) {
              codes::multiply_few(strip.codes(), lanes, x, p.k, p.m, tree, [&](int64_t row, int vector, __m256 totals) {
                strip.store(row, 8 * vector, totals);
              });
              return;
            }
            codes::decode_lines(strip.codes(), lanes, p.k, panel);
            codes::multiply_values(x, p.k, p.m, panel, tree, [&](int64_t row, __m256 left, __m256 right) {
              strip.store(row, 0, left);
              strip.store(row, 8, right);
            });
          });
        }
      });
}

}  // namespace

void weight_only_product(const WeightOnlyProduct& p, ThreadPool& pool) {
  TUTTI_ASSERT(!p.has_nibbles || p.k == 0 || (p.group > 0 && p.group % 8 == 0 && p.k % p.group == 0),
               "weight_only_product: groups of {} in {}", p.group, p.k);
  const ContractionTree tree = ContractionTree::halving(p.k);
  TUTTI_ASSERT(tree.depth() <= codes::kMostPending, "weight_only_product: a tree of depth {}", tree.depth());
  const int64_t x_size = itemsize(p.x_dtype), y_size = itemsize(p.y_dtype);
  for (int64_t first = 0; first < p.m; first += kRowsAtOnce) {
    WeightOnlyProduct part = p;
    part.m = std::min(kRowsAtOnce, p.m - first);
    part.x = static_cast<const std::byte*>(p.x) + first * p.k * x_size;
    part.y = static_cast<std::byte*>(p.y) + first * p.n * y_size;
    multiply_rows(part, tree, pool);
  }
}

}  // namespace tutti::codegen
