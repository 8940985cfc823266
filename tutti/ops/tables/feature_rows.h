// The rows that the entries of a feature look up, pooled.
#pragma once

#include <algorithm>
#include <cstdint>

#include "tutti/ops/engine/index_loops.h"
#include "tutti/ops/indexing/prefetch.h"
#include "tutti/ops/tables/row_lanes.h"

namespace tutti::facets {

inline constexpr int64_t kPooledColumns = 64;  // columns whose sums stay in registers
inline constexpr int64_t kFarBytes = 16384;    // of rows that are asked for before they are added
inline constexpr int64_t kStreamedResult =
    1 << 20;  // bytes of a result that is stored without reading its lines: it would push tables out of the caches

// The rows of the entries of one feature.
template <class Value, class Index>
struct FeatureRows {
  const Value* table;
  int64_t rows, row_stride, width;
  const Index* indices;
  int64_t end;  // of the entries of the feature
  const Wide<Value>* factors;

  int64_t far() const {
    return std::clamp<int64_t>(kFarBytes / std::max<int64_t>(width * static_cast<int64_t>(sizeof(Value)), 1), 16, 128);
  }

  void ask_for(int64_t p) const {
    const uintptr_t row =
        reinterpret_cast<uintptr_t>(table) +
        static_cast<uintptr_t>(static_cast<int64_t>(indices[p])) * static_cast<uintptr_t>(row_stride) * sizeof(Value);
    for (int64_t byte = 0; byte < width * static_cast<int64_t>(sizeof(Value)); byte += 64)
      prefetch_line(row + static_cast<uintptr_t>(byte));
  }

  // add(p, row) for the entries [first, last) whose rows are there; returns how many are not.
  template <class Add>
  int64_t each(int64_t first, int64_t last, bool asks, int64_t ahead, Add add) const {
    int64_t outside = 0;
    const auto add_entry = [&](int64_t p) {
      const int64_t row = static_cast<int64_t>(indices[p]);
      if (static_cast<uint64_t>(row) >= static_cast<uint64_t>(rows)) [[unlikely]]
        ++outside;
      else add(p, table + row * row_stride);
    };
    int64_t p = first;
    for (const int64_t asked = asks ? std::min(last, end - ahead) : first; p < asked; ++p) {
      ask_for(p + ahead);
      add_entry(p);
    }
    for (; p < last; ++p) add_entry(p);
    return outside;
  }

  // The columns [column, column + kWidth) of the entries [first, last), pooled.
  template <int64_t kWidth>
  int64_t pool_floats(int64_t first, int64_t last, int64_t column, bool mean, float* out, bool streams,
                      int64_t ahead) const {
    ColumnSums<float, kWidth> total;
    total.clear();
    const int64_t outside =
        factors ? each(first, last, column == 0, ahead,
                       [&](int64_t p, const float* row) { total.add(row + column, factors[p]); })
                : each(first, last, column == 0, ahead, [&](int64_t, const float* row) { total.add(row + column); });
    if (mean && last - first > 1) total.divide(static_cast<float>(last - first));
    if (streams) total.stream(out + column);
    else total.store(out + column);
    return outside;
  }

  // The entries [first, last), pooled to the elements from `at` on of a result; returns how many are not in the table.
  // `streams`: the result is of f32, its rows are whole lines, and it is large.
  int64_t pool(int64_t first, int64_t last, bool mean, void* out, DType dtype, int64_t at, bool streams,
               int64_t ahead) const {
    int64_t outside = width > 0 ? 0 : each(first, last, false, ahead, [](int64_t, const Value*) {});
    for (int64_t column = 0; column < width; column += kPooledColumns) {
      const int64_t n = std::min(kPooledColumns, width - column);
      if constexpr (std::is_same_v<Value, float>) {
        if (dtype == DType::f32 && (n == kPooledColumns || n == 32 || n == 16)) {
          float* const to = static_cast<float*>(out) + at;
          outside = n == kPooledColumns ? pool_floats<kPooledColumns>(first, last, column, mean, to, streams, ahead)
                    : n == 32           ? pool_floats<32>(first, last, column, mean, to, streams, ahead)
                                        : pool_floats<16>(first, last, column, mean, to, streams, ahead);
          continue;
        }
      }
      Wide<Value> sums[kPooledColumns];
      for (int64_t d = 0; d < n; ++d) sums[d] = static_cast<Wide<Value>>(kSumIdentity);
      outside = each(first, last, column == 0, ahead, [&](int64_t p, const Value* row) {
        if (factors) {
          const Wide<Value> factor = factors[p];
          each_element(row + column, n, [&](int64_t d, Wide<Value> x) { sums[d] += x * factor; });
        } else {
          each_element(row + column, n, [&](int64_t d, Wide<Value> x) { sums[d] += x; });
        }
      });
      if (mean && last - first > 1) {
        const Wide<Value> length = static_cast<Wide<Value>>(last - first);
        for (int64_t d = 0; d < n; ++d) sums[d] /= length;
      }
      store_row(out, dtype, at + column, sums, n);
    }
    return outside;
  }
};

}  // namespace tutti::facets
