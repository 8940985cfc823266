// Products of a few rows of W, a panel, with all rows of x: what the two forms of block_product() share. Private to it.
#pragma once

#include <algorithm>

#include "tutti/codegen/blocks/activation_rows.h"
#include "tutti/codegen/blocks/block_panel.h"
#include "tutti/codegen/blocks/block_product.h"
#include "tutti/codegen/gemm/contraction_tree.h"

namespace tutti::codegen::blocks {

// Rows of x up to which nothing is unpacked, and how many of more rows stand together.
inline constexpr int kFewRows = 4;
inline constexpr int kTogether = 4;
// Pending nodes of a tree.
inline constexpr int32_t kMostPending = 48;

// The forms have the same bits.
enum class Form {
  narrow,  // registers of 256 bits, for every processor
  wide,    // of 512 bits, for those of CpuTarget::avx512vnni
};

// How many rows a panel of W has where x has m rows.
constexpr int64_t panel_rows(Form form, int64_t m) { return form == Form::wide && m > kFewRows ? 16 : kPanelRows; }

struct PanelWork {
  const BlockProduct& p;
  const ContractionTree& tree;
  const ActivationRows& x;

  int64_t blocks() const { return p.k / x.block; }  // of a row
  // The block of a row of W. Rows behind the last repeat it.
  const Byte* place_of(int64_t row, int64_t block, int64_t block_bytes) const {
    return reinterpret_cast<const Byte*>(p.w) + std::min(row, p.n - 1) * p.w_stride + block * block_bytes;
  }
  RowsOfX rows_of_x(int64_t row, int64_t block) const {
    return {x.codes_of(row, block), x.scales_of(row, block), x.sums_of(row, block)};
  }
};

// Stores `count` columns of a row of y. Columns and rows behind the last are left out.
void store(const BlockProduct& p, const float* values, int64_t count, int64_t row, int64_t column);

// The panels from `begin` up to `end`.
void run_narrow_panels(const PanelWork& work, int64_t begin, int64_t end);
void run_wide_panels(const PanelWork& work, int64_t begin, int64_t end);

// block_products() in one form.
void multiply(std::span<const BlockProduct> products, Form form, ThreadPool& pool);

// Calls fn with a value of the type of the format; returns whether there is such a format.
template <class Fn>
bool visit_format(BlockFormat format, Fn fn) {
  switch (format) {
    case BlockFormat::q4_0:
      return fn(Q4_0()), true;
    case BlockFormat::q4_1:
      return fn(Q4_1()), true;
    case BlockFormat::q5_0:
      return fn(Q5_0()), true;
    case BlockFormat::q5_1:
      return fn(Q5_1()), true;
    case BlockFormat::q8_0:
      return fn(Q8_0()), true;
    case BlockFormat::q4_k:
      return fn(Q4_K()), true;
    case BlockFormat::q5_k:
      return fn(Q5_K()), true;
    case BlockFormat::q6_k:
      return fn(Q6_K()), true;
    default:
      return false;
  }
}

}  // namespace tutti::codegen::blocks
