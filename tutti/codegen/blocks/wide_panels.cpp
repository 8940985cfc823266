// Panels of W in registers of 512 bits: eight rows that are multiplied as they are decoded, or sixteen that are
// unpacked.
#if defined(__GNUC__) && !defined(__clang__)
// GCC takes the registers that its own intrinsics leave undefined for variables that were forgotten.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include "tutti/codegen/blocks/panels.h"
#include "tutti/codegen/blocks/wide_dots.h"
#include "tutti/codegen/blocks/wide_rows.h"
#include "tutti/codegen/gemm/lines_ahead.h"

namespace tutti::codegen::blocks {
namespace {

// The sums of eight rows of W, and of sixteen.
struct Eight {
  using Vector = __m256;
  TUTTI_DOTS_INLINE static __m256 sum_of(__m256 a, __m256 b) { return _mm256_add_ps(a, b); }
};
struct Sixteen {
  using Vector = __m512;
  TUTTI_DOTS_INLINE static __m512 sum_of(__m512 a, __m512 b) { return _mm512_add_ps(a, b); }
};

// Nodes of the tree that wait for those after them, for kX rows of x.
template <class Rows, int kX>
struct Pending {
  using Vector = typename Rows::Vector;
  Vector nodes[kMostPending][kX];
  int64_t top = 0;

  // Adds the chains of a leaf to `merges` of them and leaves the sums as a node.
  TUTTI_DOTS_INLINE void finish_leaf(Vector (&chains)[kX], int32_t merges) {
    for (; merges > 0; --merges) {
      --top;
      for (int i = 0; i < kX; ++i) chains[i] = Rows::sum_of(nodes[top][i], chains[i]);
    }
    for (int i = 0; i < kX; ++i) nodes[top][i] = chains[i];
    ++top;
  }
};

// Up to four rows of x and the eight rows of W from `column` on.
template <class F, int kX>
[[TUTTI_DOTS]] void run_few(const PanelWork& work, int64_t column) {
  if constexpr (kX > 1) {
    if (work.p.m < kX) return run_few<F, kX - 1>(work, column);
  }
  constexpr int64_t kAtOnce = is_small<F> ? 2 : 1, kLines = kAtOnce * kPanelRows * F::kBytes / 64 + 1;
  LinesAhead next(work.p.w, column + kPanelRows, kPanelRows, work.p.w_stride, work.blocks() * F::kBytes);
  const Byte* rows[kPanelRows];
  for (int64_t r = 0; r < kPanelRows; ++r) rows[r] = work.place_of(column + r, 0, F::kBytes);
  RowsOfW w{rows};
  Pending<Eight, kX> pending;
  int64_t first = 0;
  for (size_t leaf = 0; leaf < work.tree.leaf_lengths.size(); ++leaf) {
    const int32_t count = work.tree.leaf_lengths[leaf];
    RowsOfX x[kX];
    __m256 chains[kX];
    for (int i = 0; i < kX; ++i) x[i] = work.rows_of_x(i, first), chains[i] = _mm256_set1_ps(-0.0F);
    int64_t b = 0;
    for (; b + kAtOnce <= count; b += kAtOnce) {
      next.ask(kLines);
      if constexpr (is_small<F>) add_two_small_blocks<F>(w, b, x, chains);
      else add_wide_super_block<F>(w, b, x, chains);
      w.offset += kAtOnce * F::kBytes;
    }
    if constexpr (is_small<F>) {
      if (b < count) {
        add_rows<F>(w, b, count, x, next, chains);
        w.offset += F::kBytes;
      }
    }
    pending.finish_leaf(chains, work.tree.merges[leaf]);
    first += count;
  }
  for (int i = 0; i < kX; ++i) {
    float values[kPanelRows];
    _mm256_storeu_ps(values, pending.nodes[0][i]);
    store(work.p, values, kPanelRows, i, column);
  }
}

// What multiplies unpacked blocks is the same for formats that differ in their offsets only.
template <bool kHasMinimum>
struct SmallKind {
  const WideSmallPanel* blocks;
  int offset;

  template <int kX>
  TUTTI_DOTS_INLINE void add(int64_t first, int count, const RowsOfX (&x)[kX / kTogether], __m512 (&chains)[kX]) const {
    add_wide_blocks<kHasMinimum, kTogether>(blocks + first, count, offset, x, chains);
  }
};
template <bool kHasMinimum, int kSubBlock>
struct SuperKind {
  const WideSuperPanel* blocks;

  template <int kX>
  TUTTI_DOTS_INLINE void add(int64_t first, int count, const RowsOfX (&x)[kX / kTogether], __m512 (&chains)[kX]) const {
    add_wide_blocks<kHasMinimum, kSubBlock, kTogether>(blocks + first, count, x, chains);
  }
};

// kX rows of x from `row` on and the sixteen rows of W from `column` on.
template <class Kind, int kX>
[[TUTTI_DOTS, gnu::noinline]] void run_rows(const PanelWork& work, const Kind& unpacked, int64_t row, int64_t column) {
  Pending<Sixteen, kX> pending;
  int64_t first = 0;
  for (size_t leaf = 0; leaf < work.tree.leaf_lengths.size(); ++leaf) {
    const int32_t count = work.tree.leaf_lengths[leaf];
    RowsOfX x[kX / kTogether];
    __m512 chains[kX];
    for (int i = 0; i < kX / kTogether; ++i) x[i] = work.rows_of_x(row + i * kTogether, first);
    for (__m512& chain : chains) chain = _mm512_set1_ps(-0.0F);
    unpacked.template add<kX>(first, count, x, chains);
    pending.finish_leaf(chains, work.tree.merges[leaf]);
    first += count;
  }
  for (int i = 0; i < kX; ++i) {
    float values[kWidePanelRows];
    _mm512_storeu_ps(values, pending.nodes[0][i]);
    store(work.p, values, kWidePanelRows, row + i, column);
  }
}

template <class Kind>
void run_all_rows(const PanelWork& work, const Kind& unpacked, int64_t column) {
  int64_t row = 0;
  for (; row + kTogether < work.p.m; row += 2 * kTogether) run_rows<Kind, 2 * kTogether>(work, unpacked, row, column);
  if (row < work.p.m) run_rows<Kind, kTogether>(work, unpacked, row, column);
}

// More rows of x and the sixteen rows of W from `column` on, all of whose blocks are unpacked once.
template <class F>
[[TUTTI_DOTS]] void run_many(const PanelWork& work, int64_t column) {
  using Blocks = std::conditional_t<is_small<F>, WideSmallPanel, WideSuperPanel>;
  constexpr int64_t kAtOnce = is_small<F> ? 2 : 1, kLines = kAtOnce * kWidePanelRows * F::kBytes / 64 + 1;
  const int64_t blocks = work.blocks();
  LinesAhead next(work.p.w, column + kWidePanelRows, kWidePanelRows, work.p.w_stride, blocks * F::kBytes);
  auto* unpacked =
      reinterpret_cast<Blocks*>(gemm_workspaces().b.reserve(blocks * static_cast<int64_t>(sizeof(Blocks))));
  for (int64_t b = 0; b < blocks; b += kAtOnce) {
    next.ask(kLines);
    const Byte* at[kWidePanelRows];
    for (int64_t r = 0; r < kWidePanelRows; ++r) at[r] = work.place_of(column + r, b, F::kBytes);
    if constexpr (is_small<F>) unpack_wide<F>(at, b + 1 < blocks, unpacked + b);
    else unpack_wide<F>(at, unpacked[b]);
  }
  if constexpr (is_small<F>) run_all_rows(work, SmallKind<F::kHasMinimum>{unpacked, WideSmall<F>::kOffset}, column);
  else run_all_rows(work, SuperKind<F::kHasMinimum, F::kSubBlock>{unpacked}, column);
}

}  // namespace

void run_wide_panels(const PanelWork& work, int64_t begin, int64_t end) {
  visit_format(work.p.format, [&]<class F>(F) {
    for (int64_t panel = begin; panel < end; ++panel) {
      if (work.p.m <= kFewRows) run_few<F, kFewRows>(work, panel * kPanelRows);
      else run_many<F>(work, panel * kWidePanelRows);
    }
  });
}

}  // namespace tutti::codegen::blocks
