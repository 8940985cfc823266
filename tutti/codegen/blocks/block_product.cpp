#include "tutti/codegen/blocks/block_product.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "tutti/codegen/blocks/block_dots.h"
#include "tutti/codegen/blocks/block_rows.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/codegen/gemm/lines_ahead.h"
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
constexpr int64_t kWorthATask = int64_t{1} << 16;

// Rows of x up to which nothing is unpacked.
constexpr int kFewRows = 4;

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
template <class W, blocks::Dots kDots>
class PanelRun {
  using F = typename W::Format;
  using Blocks = typename W::Blocks;
  static constexpr bool kIsSmall = std::is_same_v<Blocks, blocks::SmallPanel>;

 public:
  PanelRun(const BlockProduct& p, const ContractionTree& tree, const ActivationRows& x)
      : p_(p), tree_(tree), x_(x), blocks_(p.k / x.block) {
    TUTTI_ASSERT(tree.depth() <= kMostPending, "block_product: a tree of depth {}", tree.depth());
  }

  void run(int64_t panel) {
    column_ = panel * kPanelRows;
    LinesAhead next(p_.w, column_ + kPanelRows, kPanelRows, p_.w_stride, blocks_ * F::kBytes);
    if (p_.m <= kFewRows) run_few<kFewRows>(next);
    else run_many(next);
  }

 private:
  template <int kX>
  void run_few(LinesAhead& next) const {
    if constexpr (kX > 1) {
      if (p_.m < kX) return run_few<kX - 1>(next);
    }
    add_leaves<kX>(0, [&](int64_t first, int32_t count, __m256(&chains)[kX]) {
      blocks::RowsOfX rows[kX];
      for (int i = 0; i < kX; ++i) rows[i] = rows_from(i, first);
      for (int32_t b = 0; b < count; ++b) {
        next.ask(kLinesOfBlock);
        const Byte* at[kPanelRows];
        places_of(first + b, at);
        if constexpr (kIsSmall) blocks::add_small_block<F>(at, b, rows, chains);
        else blocks::add_super_block<F>(at, b, rows, chains);
      }
    });
  }

  // All blocks of the panel are unpacked once. They stay in the first caches while rows of x are read through.
  void run_many(LinesAhead& next) const {
    auto* unpacked =
        reinterpret_cast<Blocks*>(gemm_workspaces().b.reserve(blocks_ * static_cast<int64_t>(sizeof(Blocks))));
    for (int64_t b = 0; b < blocks_; ++b) {
      next.ask(kLinesOfBlock);
      const Byte* at[kPanelRows];
      places_of(b, at);
      blocks::unpack<F>(at, unpacked[b]);
    }
    int64_t row = 0;
    for (; row + kTogether <= p_.m; row += kTogether) run_rows<kTogether>(unpacked, row);
    for (; row < p_.m; ++row) run_rows<1>(unpacked, row);
  }

  template <int kX>
  void run_rows(const Blocks* unpacked, int64_t row) const {
    add_leaves<kX>(row, [&](int64_t first, int32_t count, __m256(&chains)[kX]) {
      blocks::add_blocks<F, kDots>(unpacked + first, count, rows_from(row, first), chains);
    });
  }

  // Walks through the tree: `add` adds the blocks of a leaf to chains that begin at -0.0.
  template <int kX, class Add>
  [[gnu::always_inline]] void add_leaves(int64_t row, Add add) const {
    __m256 pending[kMostPending][kX];
    int64_t top = 0, block = 0;
    for (size_t leaf = 0; leaf < tree_.leaf_lengths.size(); ++leaf) {
      const int32_t count = tree_.leaf_lengths[leaf];
      __m256 chains[kX];
      std::fill_n(chains, kX, _mm256_set1_ps(-0.0F));
      add(block, count, chains);
      for (int32_t merges = tree_.merges[leaf]; merges > 0; --merges) {
        --top;
        for (int i = 0; i < kX; ++i) chains[i] = _mm256_add_ps(pending[top][i], chains[i]);
      }
      std::copy_n(chains, kX, pending[top++]);
      block += count;
    }
    for (int i = 0; i < kX; ++i) store(pending[0][i], p_, row + i, column_);
  }

  // A last panel repeats the last row.
  void places_of(int64_t block, const Byte* (&at)[kPanelRows]) const {
    for (int64_t r = 0; r < kPanelRows; ++r)
      at[r] = reinterpret_cast<const Byte*>(p_.w) + std::min(column_ + r, p_.n - 1) * p_.w_stride + block * F::kBytes;
  }

  blocks::RowsOfX rows_from(int64_t row, int64_t block) const {
    return {x_.codes_of(row, block), x_.scales_of(row, block), x_.sums_of(row, block)};
  }

  static constexpr int64_t kLinesOfBlock = kPanelRows * F::kBytes / 64 + 1;
  static constexpr int32_t kMostPending = 48;
  const BlockProduct& p_;
  const ContractionTree& tree_;
  const ActivationRows& x_;
  const int64_t blocks_;  // of a row
  int64_t column_ = 0;
};

int64_t panels_of(const BlockProduct& p) { return (p.n + kPanelRows - 1) / kPanelRows; }

// The panels from `begin` up to `end` of all products in a row.
void run_panels(std::span<const BlockProduct> products, const ContractionTree& tree, const ActivationRows& x,
                int64_t begin, int64_t end) {
  const bool has_units = cpu_target() >= CpuTarget::avx512vnni;
  for (const BlockProduct& p : products) {
    const int64_t panels = panels_of(p), first = std::max<int64_t>(begin, 0), last = std::min(end, panels);
    if (first < last)
      visit_weights(p.format, [&]<class W>(W) {
        const auto run = [&](auto rows_of_w) {
          for (int64_t panel = first; panel < last; ++panel) rows_of_w.run(panel);
        };
        if (has_units) run(PanelRun<W, blocks::Dots::units>(p, tree, x));
        else run(PanelRun<W, blocks::Dots::pairs>(p, tree, x));
      });
    begin -= panels, end -= panels;
  }
}

void multiply(std::span<const BlockProduct> all, int64_t block, ThreadPool& pool) {
  const BlockProduct& of_x = all[0];
  const ContractionTree tree = ContractionTree::halving(of_x.k / block, kBlockLeaf);
  std::vector<BlockProduct> parts(all.begin(), all.end());
  int64_t panels = 0;
  for (const BlockProduct& p : all) panels += panels_of(p);
  for (int64_t first = 0; first < of_x.m; first += kRowsAtOnce) {
    const int64_t m = std::min(kRowsAtOnce, of_x.m - first);
    const void* rows = static_cast<const std::byte*>(of_x.x) + first * of_x.k * itemsize(of_x.x_dtype);
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].m = m;
      parts[i].y = static_cast<std::byte*>(all[i].y) + first * all[i].n * itemsize(all[i].y_dtype);
    }
    const int64_t together = m <= kFewRows ? 1 : kTogether;
    const ActivationRows x = quantize_rows(rows, of_x.x_dtype, m, of_x.k, block, together, gemm_workspaces().a, pool);
    pool.parallel_for(panels, kWorthATask / (m * of_x.k * kPanelRows) + 1,
                      [&](int64_t begin, int64_t end) { run_panels(parts, tree, x, begin, end); });
  }
}

}  // namespace

bool can_multiply(BlockFormat format) {
  return visit_weights(format, [](auto) {});
}

void block_product(const BlockProduct& product, ThreadPool& pool) { block_products({&product, 1}, pool); }

void block_products(std::span<const BlockProduct> products, ThreadPool& pool) {
  const int64_t m = products[0].m, k = products[0].k, block = row_of(products[0].format).elements;
  for (const BlockProduct& p : products) {
    TUTTI_CHECK(can_multiply(p.format), "block_product: weights of {} are not multiplied; decode them first",
                row_of(p.format).name);
    TUTTI_ASSERT(k % block == 0 && row_of(p.format).elements == block, "block_product: {} elements are no blocks of {}",
                 k, row_of(p.format).name);
  }
  if (m == 0) return;
  if (k > 0) return multiply(products, block, pool);
  for (const BlockProduct& p : products)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t column = 0; column < p.n; column += kPanelRows) store(_mm256_set1_ps(-0.0F), p, i, column);
}

}  // namespace tutti::codegen
