// Panels of eight rows of W in registers of 256 bits.
#include "tutti/codegen/blocks/block_dots.h"
#include "tutti/codegen/blocks/block_rows.h"
#include "tutti/codegen/blocks/panels.h"
#include "tutti/codegen/gemm/lines_ahead.h"

namespace tutti::codegen::blocks {
namespace {

// Eight rows of W times all rows of x.
template <class F>
class NarrowPanel {
  using Blocks = PanelOf<F>;

 public:
  explicit NarrowPanel(const PanelWork& work) : work_(work) {}

  void run(int64_t panel) {
    column_ = panel * kPanelRows;
    LinesAhead next(work_.p.w, column_ + kPanelRows, kPanelRows, work_.p.w_stride, work_.blocks() * F::kBytes);
    if (work_.p.m <= kFewRows) run_few<kFewRows>(next);
    else run_many(next);
  }

 private:
  template <int kX>
  void run_few(LinesAhead& next) const {
    if constexpr (kX > 1) {
      if (work_.p.m < kX) return run_few<kX - 1>(next);
    }
    const Byte* rows[kPanelRows];
    places_of(0, rows);
    add_leaves<kX>(0, [&](int64_t first, int32_t count, __m256(&chains)[kX]) {
      RowsOfX x[kX];
      for (int i = 0; i < kX; ++i) x[i] = work_.rows_of_x(i, first);
      add_rows<F>({rows, first * F::kBytes}, 0, count, x, next, chains);
    });
  }

  // All blocks of the panel are unpacked once. They stay in the first caches while rows of x are read through.
  void run_many(LinesAhead& next) const {
    auto* unpacked =
        reinterpret_cast<Blocks*>(gemm_workspaces().b.reserve(work_.blocks() * static_cast<int64_t>(sizeof(Blocks))));
    for (int64_t b = 0; b < work_.blocks(); ++b) {
      next.ask(kLinesOfBlock);
      const Byte* at[kPanelRows];
      places_of(b, at);
      unpack<F>(at, unpacked[b]);
    }
    for (int64_t row = 0; row < work_.p.m; row += kTogether)
      add_leaves<kTogether>(row, [&](int64_t first, int32_t count, __m256(&chains)[kTogether]) {
        add_blocks<F>(unpacked + first, count, work_.rows_of_x(row, first), chains);
      });
  }

  // Walks through the tree: `add` adds the blocks of a leaf to chains that begin at -0.0.
  template <int kX, class Add>
  [[gnu::always_inline]] void add_leaves(int64_t row, Add add) const {
    __m256 pending[kMostPending][kX];
    int64_t top = 0, block = 0;
    for (size_t leaf = 0; leaf < work_.tree.leaf_lengths.size(); ++leaf) {
      const int32_t count = work_.tree.leaf_lengths[leaf];
      __m256 chains[kX];
      std::fill_n(chains, kX, _mm256_set1_ps(-0.0F));
      add(block, count, chains);
      for (int32_t merges = work_.tree.merges[leaf]; merges > 0; --merges) {
        --top;
        for (int i = 0; i < kX; ++i) chains[i] = _mm256_add_ps(pending[top][i], chains[i]);
      }
      std::copy_n(chains, kX, pending[top++]);
      block += count;
    }
    for (int i = 0; i < kX; ++i) {
      float values[kPanelRows];
      _mm256_storeu_ps(values, pending[0][i]);
      store(work_.p, values, kPanelRows, row + i, column_);
    }
  }

  void places_of(int64_t block, const Byte* (&at)[kPanelRows]) const {
    for (int64_t r = 0; r < kPanelRows; ++r) at[r] = work_.place_of(column_ + r, block, F::kBytes);
  }

  static constexpr int64_t kLinesOfBlock = kPanelRows * F::kBytes / 64 + 1;
  const PanelWork& work_;
  int64_t column_ = 0;
};

}  // namespace

void run_narrow_panels(const PanelWork& work, int64_t begin, int64_t end) {
  visit_format(work.p.format, [&]<class F>(F) {
    NarrowPanel<F> rows_of_w(work);
    for (int64_t panel = begin; panel < end; ++panel) rows_of_w.run(panel);
  });
}

}  // namespace tutti::codegen::blocks
