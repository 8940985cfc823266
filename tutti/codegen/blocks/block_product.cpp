#include "tutti/codegen/blocks/block_product.h"

#include <vector>

#include "tutti/codegen/blocks/panels.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

// Rows of x that share a pass over W.
constexpr int64_t kRowsAtOnce = 512;
// Multiply-adds below which handing a task to another thread costs more than it saves.
constexpr int64_t kWorthATask = int64_t{1} << 16;

blocks::Form form_here() { return cpu_target() >= CpuTarget::avx512vnni ? blocks::Form::wide : blocks::Form::narrow; }

}  // namespace

namespace blocks {

void store(const BlockProduct& p, const float* values, int64_t count, int64_t row, int64_t column) {
  if (row >= p.m) return;
  const int64_t at = row * p.n + column;
  count = std::min(count, p.n - column);
  if (p.y_dtype == DType::f32) {
    std::copy_n(values, count, static_cast<float*>(p.y) + at);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    if (p.y_dtype == DType::bf16) static_cast<bfloat16*>(p.y)[at + i] = to_bfloat16(values[i]);
    else static_cast<float16*>(p.y)[at + i] = to_float16(values[i]);
  }
}

void multiply(std::span<const BlockProduct> all, Form form, ThreadPool& pool) {
  const BlockProduct& of_x = all[0];
  const int64_t block = row_of(of_x.format).elements;
  const ContractionTree tree = ContractionTree::halving(of_x.k / block, kBlockLeaf);
  TUTTI_ASSERT(tree.depth() <= kMostPending, "block_product: a tree of depth {}", tree.depth());
  std::vector<BlockProduct> parts(all.begin(), all.end());
  for (int64_t first = 0; first < of_x.m; first += kRowsAtOnce) {
    const int64_t m = std::min(kRowsAtOnce, of_x.m - first), side = panel_rows(form, m);
    const auto panels_of = [side](const BlockProduct& p) { return (p.n + side - 1) / side; };
    const void* rows = static_cast<const std::byte*>(of_x.x) + first * of_x.k * itemsize(of_x.x_dtype);
    int64_t panels = 0;
    for (size_t i = 0; i < parts.size(); ++i) {
      parts[i].m = m;
      parts[i].y = static_cast<std::byte*>(all[i].y) + first * all[i].n * itemsize(all[i].y_dtype);
      panels += panels_of(parts[i]);
    }
    const int64_t together = m <= kFewRows ? 1 : kTogether;
    const ActivationRows x = quantize_rows(rows, of_x.x_dtype, m, of_x.k, block, together, gemm_workspaces().a, pool);
    // The panels of all products are numbered in a row.
    pool.parallel_for(panels, kWorthATask / (m * of_x.k * side) + 1, [&](int64_t begin, int64_t end) {
      for (const BlockProduct& p : parts) {
        const int64_t count = panels_of(p), from = std::max<int64_t>(begin, 0), to = std::min(end, count);
        if (from < to) (form == Form::wide ? run_wide_panels : run_narrow_panels)({p, tree, x}, from, to);
        begin -= count, end -= count;
      }
    });
  }
}

}  // namespace blocks

std::string_view instructions_of_blocks() {
  return name_of(form_here() == blocks::Form::wide ? CpuTarget::avx512vnni : CpuTarget::avx2);
}

bool can_multiply(BlockFormat format) {
  return blocks::visit_format(format, [](auto) {});
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
  if (k > 0) return blocks::multiply(products, form_here(), pool);
  const float none = -0.0F;
  for (const BlockProduct& p : products)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t column = 0; column < p.n; ++column) blocks::store(p, &none, 1, i, column);
}

}  // namespace tutti::codegen
