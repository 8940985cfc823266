#include "tutti/codegen/blocks/block_product.h"

#include <algorithm>

#include "tutti/codegen/blocks/block_dots.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

using blocks::Byte;
using blocks::kPanelRows;

// Rows of x that share a pass over W, and how many of them take a register of codes together.
constexpr int64_t kRowsAtOnce = 512;
constexpr int kTogether = 4;
// Multiply-adds below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 18;

template <class F, class Panel>
struct Weights {
  using Format = F;
  using Blocks = Panel;
};
template <class F>
using Small = Weights<F, blocks::SmallPanel>;
template <class F>
using Super = Weights<F, blocks::SuperPanel>;

// Calls fn with Weights of the format; returns whether there is such a format.
template <class Fn>
bool visit_weights(BlockFormat format, Fn fn) {
  switch (format) {
    case BlockFormat::q4_0:
      return fn(Small<blocks::Q4_0>()), true;
    case BlockFormat::q4_1:
      return fn(Small<blocks::Q4_1>()), true;
    case BlockFormat::q5_0:
      return fn(Small<blocks::Q5_0>()), true;
    case BlockFormat::q5_1:
      return fn(Small<blocks::Q5_1>()), true;
    case BlockFormat::q8_0:
      return fn(Small<blocks::Q8_0>()), true;
    case BlockFormat::q4_k:
      return fn(Super<blocks::Q4_K>()), true;
    case BlockFormat::q5_k:
      return fn(Super<blocks::Q5_K>()), true;
    case BlockFormat::q6_k:
      return fn(Super<blocks::Q6_K>()), true;
    default:
      return false;
  }
}

void store(__m256 sums, const BlockProduct& p, int64_t row, int64_t column) {
  const int64_t count = std::min(kPanelRows, p.n - column), at = row * p.n + column;
  float values[kPanelRows];
  _mm256_storeu_ps(values, sums);
  for (int64_t i = 0; i < count; ++i) {
    if (p.y_dtype == DType::f32) static_cast<float*>(p.y)[at + i] = values[i];
    else if (p.y_dtype == DType::bf16) static_cast<bfloat16*>(p.y)[at + i] = to_bfloat16(values[i]);
    else static_cast<float16*>(p.y)[at + i] = to_float16(values[i]);
  }
}

// Eight rows of W times all rows of x.
template <class W>
class PanelRun {
 public:
  PanelRun(const BlockProduct& p, const ContractionTree& tree, const ActivationRows& x)
      : p_(p), tree_(tree), x_(x), depth_(tree.depth()) {}

  void run(int64_t panel) {
    GemmWorkspaces& mine = gemm_workspaces();
    auto* unpacked = reinterpret_cast<typename W::Blocks*>(mine.b.reserve(kBlockLeaf * sizeof(typename W::Blocks)));
    stack_ = reinterpret_cast<float*>(mine.stack.reserve(depth_ * p_.m * kPanelRows * itemsize(DType::f32)));
    column_ = panel * kPanelRows;
    pending_ = 0, block_ = 0;
    for (size_t leaf = 0; leaf < tree_.leaf_lengths.size(); ++leaf) {
      const int32_t count = tree_.leaf_lengths[leaf];
      for (int32_t b = 0; b < count; ++b) unpack(block_ + b, unpacked[b]);
      merges_ = tree_.merges[leaf];
      is_last_ = leaf + 1 == tree_.leaf_lengths.size();
      int64_t row = 0;
      for (; row + kTogether <= p_.m; row += kTogether) run_rows<kTogether>(unpacked, count, row);
      for (; row < p_.m; ++row) run_rows<1>(unpacked, count, row);
      pending_ += 1 - merges_;
      block_ += count;
    }
  }

 private:
  // A last panel repeats the last row.
  void unpack(int64_t block, typename W::Blocks& to) const {
    const Byte* rows[kPanelRows];
    for (int64_t r = 0; r < kPanelRows; ++r)
      rows[r] = reinterpret_cast<const Byte*>(p_.w) + std::min(column_ + r, p_.n - 1) * p_.w_stride +
                block * W::Format::kBytes;
    blocks::unpack<typename W::Format>(rows, to);
  }

  template <int kX>
  void run_rows(const typename W::Blocks* unpacked, int32_t count, int64_t row) const {
    blocks::LeafRows<kX> rows;
    __m256 chains[kX];
    for (int i = 0; i < kX; ++i) {
      rows.codes[i] = x_.codes_of(row + i, block_);
      rows.scales[i] = x_.scales_of(row + i, block_);
      rows.sums[i] = x_.sums_of(row + i, block_);
      chains[i] = _mm256_set1_ps(-0.0F);
    }
    blocks::add_blocks<typename W::Format>(unpacked, count, rows, chains);
    for (int i = 0; i < kX; ++i) {
      __m256 sum = chains[i];
      int64_t pending = pending_;
      for (int32_t merge = 0; merge < merges_; ++merge)
        sum = _mm256_add_ps(_mm256_loadu_ps(partial(row + i, --pending)), sum);
      if (is_last_) store(sum, p_, row + i, column_);
      else _mm256_storeu_ps(partial(row + i, pending), sum);
    }
  }

  float* partial(int64_t row, int64_t level) const { return stack_ + (row * depth_ + level) * kPanelRows; }

  const BlockProduct& p_;
  const ContractionTree& tree_;
  const ActivationRows& x_;
  const int64_t depth_;
  float* stack_ = nullptr;
  int64_t column_ = 0, block_ = 0, pending_ = 0;
  int32_t merges_ = 0;
  bool is_last_ = false;
};

template <class W>
void multiply(const BlockProduct& all, int64_t block, ThreadPool& pool) {
  const ContractionTree tree = ContractionTree::halving(all.k / block, kBlockLeaf);
  const int64_t panels = (all.n + kPanelRows - 1) / kPanelRows;
  for (int64_t first = 0; first < all.m; first += kRowsAtOnce) {
    BlockProduct p = all;
    p.m = std::min(kRowsAtOnce, all.m - first);
    p.x = static_cast<const std::byte*>(all.x) + first * all.k * itemsize(all.x_dtype);
    p.y = static_cast<std::byte*>(all.y) + first * all.n * itemsize(all.y_dtype);
    const ActivationRows x = quantize_rows(p.x, p.x_dtype, p.m, p.k, block, gemm_workspaces().a, pool);
    pool.parallel_for(panels, kWorthATask / (p.m * p.k * kPanelRows) + 1, [&](int64_t begin, int64_t end) {
      PanelRun<W> run(p, tree, x);
      for (int64_t panel = begin; panel < end; ++panel) run.run(panel);
    });
  }
}

}  // namespace

bool can_multiply(BlockFormat format) {
  return visit_weights(format, [](auto) {});
}

void block_product(const BlockProduct& p, ThreadPool& pool) {
  const BlockFormatRow& row = row_of(p.format);
  TUTTI_CHECK(can_multiply(p.format), "block_product: weights of {} are not multiplied; decode them first", row.name);
  TUTTI_ASSERT(p.k % row.elements == 0, "block_product: {} elements are no blocks of {}", p.k, row.elements);
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) {
    for (int64_t i = 0; i < p.m; ++i)
      for (int64_t column = 0; column < p.n; column += kPanelRows) store(_mm256_set1_ps(-0.0F), p, i, column);
    return;
  }
  visit_weights(p.format, [&]<class W>(W) { multiply<W>(p, row.elements, pool); });
}

}  // namespace tutti::codegen
