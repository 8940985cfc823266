// Products of up to four rows of numbers with codes that are decoded as they are read, in the order of memory; what
// decode_lines.h and gemm() do for many rows. Chains and tree are those of numerics contract N3. Private to the
// products of codes.
#pragma once

#include <immintrin.h>

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tutti/codegen/codes/code_lanes.h"
#include "tutti/codegen/codes/wide_form.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/codegen/gemm/contraction_tree.h"

namespace tutti::codegen::codes {

inline constexpr int64_t kFewRows = 4;
inline constexpr int32_t kMostPending = 48;
// Registers of columns that a pass takes together: enough chains for the latency of a multiply-add, and few enough that
// they stay in registers.
template <class Form>
constexpr int vectors_of(int rows) {
  return Form::kLanes == 16 || rows <= 2 ? 4 : 2;
}
// The columns of a pass.
inline int64_t few_columns(int64_t rows) {
  const int count = static_cast<int>(rows);
  return has_wide_registers(cpu_target()) ? WideForm::kLanes * vectors_of<WideForm>(count)
                                          : NarrowForm::kLanes * vectors_of<NarrowForm>(count);
}
inline constexpr int64_t kMostFewColumns = 64;

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
template <int kX, int kVectors>
struct WideChains {
  const float* x;
  int64_t stride;
  __m512 sums[kX][kVectors];
  [[gnu::always_inline, TUTTI_WIDE]] void take(int64_t k, int v, __m512 w) {
    for (int r = 0; r < kX; ++r) sums[r][v] = _mm512_fmadd_ps(_mm512_set1_ps(x[r * stride + k]), w, sums[r][v]);
  }
};

// Continues chains[kX][columns] with the codes [begin, end) of k, all of them in a line.
template <bool kSpecial, int kX, class Lanes>
void add_codes(NarrowForm, const Lanes& lanes, const uint32_t* words, int64_t first_word, int64_t begin, int64_t end,
               const float* x, int64_t stride, float* chains) {
  constexpr int kVectors = vectors_of<NarrowForm>(kX);
  NarrowChains<kX, kVectors> sink{x, stride, {}};
  for (int r = 0; r < kX; ++r)
    for (int v = 0; v < kVectors; ++v) sink.sums[r][v] = _mm256_load_ps(chains + (r * kVectors + v) * 8);
  NarrowForm::visit_codes<kSpecial, kVectors>(lanes, words, first_word, begin, end, sink);
  for (int r = 0; r < kX; ++r)
    for (int v = 0; v < kVectors; ++v) _mm256_store_ps(chains + (r * kVectors + v) * 8, sink.sums[r][v]);
}
template <bool kSpecial, int kX, class Lanes>
[[TUTTI_WIDE]] void add_codes(WideForm, const Lanes& lanes, const uint32_t* words, int64_t first_word, int64_t begin,
                              int64_t end, const float* x, int64_t stride, float* chains) {
  constexpr int kVectors = vectors_of<WideForm>(kX);
  WideChains<kX, kVectors> sink{x, stride, {}};
  for (int r = 0; r < kX; ++r)
    for (int v = 0; v < kVectors; ++v) sink.sums[r][v] = _mm512_load_ps(chains + (r * kVectors + v) * 16);
  WideForm::visit_codes<kSpecial, kVectors>(lanes, words, first_word, begin, end, sink);
  for (int r = 0; r < kX; ++r)
    for (int v = 0; v < kVectors; ++v) _mm512_store_ps(chains + (r * kVectors + v) * 16, sink.sums[r][v]);
}

// sums[r * columns + j]: the totals of row r of x, `stride` numbers apart, with column j.
template <class Form, int kX, class Lanes>
void multiply_lines(const CodeColumns& c, const Lanes& lanes, const float* x, int64_t stride,
                    const ContractionTree& tree, float* sums) {
  constexpr int kVectors = vectors_of<Form>(kX);
  constexpr int64_t kLineCodes = kLineWords * Lanes::kPerWord, kSums = kX * kVectors * Form::kLanes;
  alignas(64) uint32_t words[kLineWords * kVectors * Form::kLanes];
  alignas(64) float chains[kSums], pending[kMostPending][kSums];
  int64_t top = 0, p = 0, line = -1;
  bool is_special = false;
  std::fill_n(sums, kSums, -0.0F);
  for (size_t leaf = 0; leaf < tree.leaf_lengths.size(); ++leaf) {
    std::fill_n(chains, kSums, -0.0F);
    for (const int64_t end_of_leaf = p + tree.leaf_lengths[leaf]; p < end_of_leaf;) {
      if (p / kLineCodes != line) {
        line = p / kLineCodes;
        Form::template load_line<kVectors>(c, line, words);
        if constexpr (Lanes::kHasSpecial) is_special = lanes.may_be_special(Form(), words, std::ssize(words));
      }
      const int64_t end = std::min(end_of_leaf, (line + 1) * kLineCodes);
      if (is_special) add_codes<true, kX>(Form(), lanes, words, line * kLineWords, p, end, x, stride, chains);
      else add_codes<false, kX>(Form(), lanes, words, line * kLineWords, p, end, x, stride, chains);
      p = end;
    }
    for (int32_t merges = tree.merges[leaf]; merges > 0; --merges) {
      --top;
      for (int64_t i = 0; i < kSums; ++i) chains[i] = pending[top][i] + chains[i];
    }
    std::copy_n(chains, kSums, pending[top++]);
    std::copy_n(chains, kSums, sums);
  }
}

// The same for `rows` <= kFewRows rows of x, with few_columns(rows) columns.
template <int kX = kFewRows, class Lanes>
void multiply_few(const CodeColumns& c, const Lanes& lanes, const float* x, int64_t stride, int64_t rows,
                  const ContractionTree& tree, float* sums) {
  if constexpr (kX > 1) {
    if (rows < kX) return multiply_few<kX - 1>(c, lanes, x, stride, rows, tree, sums);
  }
  if (has_wide_registers(cpu_target())) multiply_lines<WideForm, kX>(c, lanes, x, stride, tree, sums);
  else multiply_lines<NarrowForm, kX>(c, lanes, x, stride, tree, sums);
}

}  // namespace tutti::codegen::codes
