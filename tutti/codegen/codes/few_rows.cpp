#include "tutti/codegen/codes/few_rows.h"

#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <iterator>

#include "tutti/codegen/codes/code_streams.h"
#include "tutti/codegen/codes/wide_lanes.h"

namespace tutti::codegen::codes {
namespace {

// Registers of columns that a pass takes together: enough chains for the latency of a multiply-add, and few enough that
// they stay in registers.
constexpr int vectors_of(int rows) { return rows <= 2 ? 4 : 2; }

// Adds x * code to chains, one for each row of x and column.
template <int kX, int kVectors>
struct NarrowChains {
  const float* x;
  int64_t stride;
  __m256 sums[kX][kVectors];
  [[gnu::always_inline]] void take(int64_t k, int v, __m256 w) {
    for (int r = 0; r < kX; ++r) sums[r][v] = _mm256_fmadd_ps(_mm256_broadcast_ss(x + r * stride + k), w, sums[r][v]);
  }
};

// Continues chains[kX][columns] with the codes [begin, end) of k, all of them in a line.
template <bool kSpecial, int kX, class Lanes>
void add_codes(const Lanes& lanes, const uint32_t* words, int64_t first_word, int64_t begin, int64_t end,
               const float* x, int64_t stride, float* chains) {
  constexpr int kVectors = vectors_of(kX);
  NarrowChains<kX, kVectors> sink{x, stride, {}};
  for (int r = 0; r < kX; ++r)
    for (int v = 0; v < kVectors; ++v) sink.sums[r][v] = _mm256_load_ps(chains + (r * kVectors + v) * 8);
  NarrowForm::visit_codes<kSpecial, kVectors>(lanes, words, first_word, begin, end, sink);
  for (int r = 0; r < kX; ++r)
    for (int v = 0; v < kVectors; ++v) _mm256_store_ps(chains + (r * kVectors + v) * 8, sink.sums[r][v]);
}

// sums[r * columns + j]: the totals of row r of x with column j.
template <int kX, class Lanes>
void multiply_lines(const CodeColumns& c, const Lanes& lanes, const float* x, int64_t stride,
                    const ContractionTree& tree, float* sums) {
  constexpr int kVectors = vectors_of(kX);
  constexpr int64_t kLineCodes = kLineWords * Lanes::kPerWord, kSums = kX * kVectors * NarrowForm::kLanes;
  alignas(64) uint32_t words[kLineWords * kVectors * NarrowForm::kLanes];
  alignas(64) float chains[kSums], pending[kMostPending][kSums];
  int64_t top = 0, p = 0, line = -1;
  bool is_special = false;
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    std::fill_n(chains, kSums, -0.0F);
    for (const int64_t end_of_leaf = p + tree.leaf_lengths[leaf]; p < end_of_leaf;) {
      if (p / kLineCodes != line) {
        line = p / kLineCodes;
        NarrowForm::load_line<kVectors>(c, line, words);
        if constexpr (Lanes::kHasSpecial) is_special = lanes.may_be_special(words, std::ssize(words));
      }
      const int64_t end = std::min(end_of_leaf, (line + 1) * kLineCodes);
      if (is_special) add_codes<true, kX>(lanes, words, line * kLineWords, p, end, x, stride, chains);
      else add_codes<false, kX>(lanes, words, line * kLineWords, p, end, x, stride, chains);
      p = end;
    }
    for (int32_t merges = tree.merges[leaf]; merges > 0; --merges) {
      --top;
      for (int64_t i = 0; i < kSums; ++i) chains[i] = pending[top][i] + chains[i];
    }
    std::copy_n(chains, kSums, pending[top++]);
  }
  std::copy_n(pending[0], kSums, sums);
}

template <int kX = kNarrowRows, class Lanes>
void multiply_few_narrow(const CodeColumns& c, const Lanes& lanes, const FewRows& x, const ContractionTree& tree,
                         float* sums) {
  if constexpr (kX > 1) {
    if (x.count < kX) return multiply_few_narrow<kX - 1>(c, lanes, x, tree, sums);
  }
  multiply_lines<kX>(c, lanes, x.x, x.stride, tree, sums);
}
template <int kX = kWideRows, class Lanes>
void multiply_few_wide(const CodeColumns& c, const Lanes& lanes, const FewRows& x, const ContractionTree& tree,
                       float* sums) {
  if constexpr (kX > 1) {
    if (x.stride < kX) return multiply_few_wide<kX / 2>(c, lanes, x, tree, sums);
  }
  multiply_streams<kX>(c, lanes, x.x, tree, sums, kMostFewColumns);
}

template <class Lanes>
void multiply(const CodeColumns& c, const Lanes& lanes, const FewRows& x, const ContractionTree& tree, float* sums) {
  if (tree.leaf_lengths.empty()) std::fill_n(sums, x.count * few_columns(x.count), -0.0F);
  else if (!has_wide_registers(cpu_target())) multiply_few_narrow(c, lanes, x, tree, sums);
  else with_wide(lanes, [&](const auto& wide) { multiply_few_wide(c, wide, x, tree, sums); });
}

}  // namespace

int64_t few_columns(int64_t rows) {
  if (has_wide_registers(cpu_target())) return kMostFewColumns;
  return NarrowForm::kLanes * vectors_of(static_cast<int>(rows));
}

FewRows few_rows(const float* x, int64_t stride, int64_t count, int64_t k, Workspace& memory) {
  if (count == 1 || !has_wide_registers(cpu_target())) return {x, count == 1 ? 1 : stride, count};
  // The numbers of rows that there is a kernel for; nothing is done with the sums of the others.
  const auto all = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  auto* const to = reinterpret_cast<float*>(memory.reserve(all * k * 4));
  for (int64_t p = 0; p < k; ++p)
    for (int64_t r = 0; r < all; ++r) to[p * all + r] = r < count ? x[r * stride + p] : 0.0F;
  return {to, all, count};
}

void multiply_few(const CodeColumns& c, const ByteLanes& lanes, const FewRows& x, const ContractionTree& tree,
                  float* sums) {
  multiply(c, lanes, x, tree, sums);
}
void multiply_few(const CodeColumns& c, const E4m3Lanes& lanes, const FewRows& x, const ContractionTree& tree,
                  float* sums) {
  multiply(c, lanes, x, tree, sums);
}
void multiply_few(const CodeColumns& c, const NibbleLanes& lanes, const FewRows& x, const ContractionTree& tree,
                  float* sums) {
  multiply(c, lanes, x, tree, sums);
}

}  // namespace tutti::codegen::codes
