// The rows that the entries of a feature look up, pooled.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/tables/row_lanes.h"

namespace tutti::facets {

inline constexpr int64_t kPooledColumns = 64;  // columns whose sums stay in registers
inline constexpr int64_t kLineBytes = 64;
inline constexpr int64_t kFarBytes = 4096;  // of rows that are asked for before they are added

// The rows of the entries of one feature.
template <class Value, class Index>
struct FeatureRows {
  const Value* table;
  int64_t rows, row_stride, width;
  const Index* indices;
  int64_t end;  // of the entries of the feature
  const Wide<Value>* factors;

  int64_t far() const {
    return std::clamp<int64_t>(kFarBytes / std::max<int64_t>(width * static_cast<int64_t>(sizeof(Value)), 1), 8, 64);
  }

  void ask_for(int64_t p) const {
    const uintptr_t row =
        reinterpret_cast<uintptr_t>(table) +
        static_cast<uintptr_t>(static_cast<int64_t>(indices[p])) * static_cast<uintptr_t>(row_stride) * sizeof(Value);
    for (int64_t byte = 0; byte < width * static_cast<int64_t>(sizeof(Value)); byte += kLineBytes)
      __builtin_prefetch(reinterpret_cast<const void*>(row + static_cast<uintptr_t>(byte)));
  }

  template <int64_t kWidth, bool kScaled>
  void sum_floats(int64_t first, int64_t last, int64_t column, int64_t ahead, float* sums) const {
    ColumnSums<float, kWidth> total;
    total.clear();
    const int64_t asks_until = column == 0 ? end - ahead : 0;
    for (int64_t p = first; p < last; ++p) {
      if (p < asks_until) ask_for(p + ahead);
      const int64_t row = static_cast<int64_t>(indices[p]);
      if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(rows)) [[unlikely]]
        continue;
      if constexpr (kScaled) total.add(table + row * row_stride + column, factors[p]);
      else total.add(table + row * row_stride + column);
    }
    total.store(sums);
  }

  // The columns [column, column + n) of the entries [first, last), summed; kWidth is n, or 0.
  template <int64_t kWidth>
  void sum(int64_t first, int64_t last, int64_t column, int64_t n, int64_t ahead, Wide<Value>* sums) const {
    if constexpr (std::is_same_v<Value, float> && kWidth > 0) {
      if (factors) return sum_floats<kWidth, true>(first, last, column, ahead, sums);
      return sum_floats<kWidth, false>(first, last, column, ahead, sums);
    }
    const int64_t count = kWidth ? kWidth : n;
    Wide<Value> total[kPooledColumns];
    for (int64_t d = 0; d < count; ++d) total[d] = static_cast<Wide<Value>>(kSumIdentity);
    for (int64_t p = first; p < last; ++p) {
      if (column == 0 && p + ahead < end) ask_for(p + ahead);
      const int64_t row = static_cast<int64_t>(indices[p]);
      if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(rows)) [[unlikely]]
        continue;
      const Value* from = table + row * row_stride + column;
      if (factors) {
        const Wide<Value> factor = factors[p];
        each_element(from, count, [&](int64_t d, Wide<Value> x) { total[d] += x * factor; });
      } else {
        each_element(from, count, [&](int64_t d, Wide<Value> x) { total[d] += x; });
      }
    }
    for (int64_t d = 0; d < count; ++d) sums[d] = total[d];
  }

  void pool(int64_t first, int64_t last, bool mean, void* out, DType dtype, int64_t at, int64_t ahead) const {
    for (int64_t column = 0; column < width; column += kPooledColumns) {
      Wide<Value> sums[kPooledColumns];
      const int64_t n = std::min(kPooledColumns, width - column);
      if (n == kPooledColumns) sum<kPooledColumns>(first, last, column, n, ahead, sums);
      else if (n == 32) sum<32>(first, last, column, n, ahead, sums);
      else if (n == 16) sum<16>(first, last, column, n, ahead, sums);
      else sum<0>(first, last, column, n, ahead, sums);
      if (mean && last - first > 1) {
        const Wide<Value> length = static_cast<Wide<Value>>(last - first);
        for (int64_t d = 0; d < n; ++d) sums[d] /= length;
      }
      store_row(out, dtype, at + column, sums, n);
    }
  }
};

}  // namespace tutti::facets
