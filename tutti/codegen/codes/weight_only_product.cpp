#include "tutti/codegen/codes/weight_only_product.h"

#include <algorithm>
#include <cstring>

#include "tutti/codegen/codes/value_panel.h"
#include "tutti/codegen/gemm/workspace.h"
#include "tutti/core/error.h"
#include "tutti/runtime/thread_pool.h"

namespace tutti::codegen {
namespace {

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
const float* rows_of(const WeightOnlyProduct& p, int64_t first, int64_t count, ThreadPool& pool) {
  const int64_t elements = count * p.k;
  if (p.x_dtype == DType::f32) return static_cast<const float*>(p.x) + first * p.k;
  auto* rows = reinterpret_cast<float*>(gemm_workspaces().a.reserve(elements * 4));
  pool.parallel_for(elements, kWorthWidening, [&](int64_t begin, int64_t end) {
    const int64_t at = first * p.k + begin;
    if (p.x_dtype == DType::bf16) widen(static_cast<const bfloat16*>(p.x) + at, end - begin, rows + begin);
    else widen(static_cast<const float16*>(p.x) + at, end - begin, rows + begin);
  });
  return rows;
}

__m256 whole_numbers(const uint8_t* codes, int64_t count) {
  uint8_t eight[8] = {};
  std::memcpy(eight, codes, static_cast<size_t>(count));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(eight))));
}

// Eight codes of 4 bits in four bytes.
__m256 nibbles(const uint8_t* codes) {
  int32_t bytes;
  std::memcpy(&bytes, codes, sizeof(bytes));
  const __m256i shifted = _mm256_srlv_epi32(_mm256_set1_epi32(bytes), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
  return _mm256_cvtepi32_ps(_mm256_and_si256(shifted, _mm256_set1_epi32(15)));
}

class Panel {
 public:
  Panel(const WeightOnlyProduct& p, int64_t first)
      : p_(p), first_(first), columns_(std::min(codes::kValueColumns, p.n - first)) {}

  void decode(float* panel) const {
    const auto row_at = [&](int64_t j) { return reinterpret_cast<const uint8_t*>(p_.w) + (first_ + j) * p_.w_stride; };
    if (!p_.has_nibbles) {
      codes::decode_rows(
          columns_, p_.k, [&](int64_t j, int64_t at, int64_t count) { return whole_numbers(row_at(j) + at, count); },
          panel);
      return;
    }
    codes::decode_rows(
        columns_, p_.k,
        [&](int64_t j, int64_t at, int64_t) {
          const int64_t group = (first_ + j) * (p_.k / p_.group) + at / p_.group;
          return _mm256_fmadd_ps(nibbles(row_at(j) + at / 2), _mm256_set1_ps(p_.scale.data[group]),
                                 _mm256_set1_ps(p_.minimum[group]));
        },
        panel);
  }

  void store(int64_t row, int64_t half, __m256 totals) const {
    float values[8];
    _mm256_storeu_ps(values, totals);
    const int64_t count = std::min<int64_t>(8, columns_ - half), at = row * p_.n + first_ + half;
    for (int64_t i = 0; i < count; ++i) {
      const float y = !p_.has_nibbles ? values[i] * p_.scale[first_ + half + i] : values[i];
      if (p_.y_dtype == DType::f32) static_cast<float*>(p_.y)[at + i] = y;
      else if (p_.y_dtype == DType::bf16) static_cast<bfloat16*>(p_.y)[at + i] = to_bfloat16(y);
      else static_cast<float16*>(p_.y)[at + i] = to_float16(y);
    }
  }

 private:
  const WeightOnlyProduct& p_;
  const int64_t first_, columns_;
};

}  // namespace

void weight_only_product(const WeightOnlyProduct& p, ThreadPool& pool) {
  TUTTI_ASSERT(!p.has_nibbles || p.k == 0 || (p.group > 0 && p.group % 8 == 0 && p.k % p.group == 0),
               "weight_only_product: groups of {} in {}", p.group, p.k);
  const ContractionTree tree = ContractionTree::halving(p.k);
  TUTTI_ASSERT(tree.depth() <= codes::kMostPending, "weight_only_product: a tree of depth {}", tree.depth());
  const int64_t panels = (p.n + codes::kValueColumns - 1) / codes::kValueColumns;
  for (int64_t first = 0; first < p.m; first += kRowsAtOnce) {
    const int64_t count = std::min(kRowsAtOnce, p.m - first);
    const float* x = rows_of(p, first, count, pool);
    pool.parallel_for(
        panels, kWorthATask / (count * (p.k + 1) * codes::kValueColumns) + 1, [&](int64_t begin, int64_t end) {
          auto* values = reinterpret_cast<float*>(gemm_workspaces().b.reserve(p.k * codes::kValueColumns * 4));
          for (int64_t i = begin; i < end; ++i) {
            const Panel panel(p, i * codes::kValueColumns);
            panel.decode(values);
            codes::multiply_values(x, p.k, count, values, tree, [&](int64_t row, __m256 left, __m256 right) {
              panel.store(first + row, 0, left);
              panel.store(first + row, 8, right);
            });
          }
        });
  }
}

}  // namespace tutti::codegen
