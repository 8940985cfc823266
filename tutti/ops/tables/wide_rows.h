// FeatureRows::pool() without weights, with registers of 512 bits.
#pragma once

#include "tutti/ops/tables/feature_rows.h"
#include "tutti/ops/tables/wide_sums.h"

namespace tutti::facets {

// 16 * kVectors columns from `column` on. Returns how many entries are not in the table.
template <int kVectors, class Value, class Index>
[[TUTTI_WIDE]] int64_t pool_columns(const FeatureRows<Value, Index>& f, int64_t first, int64_t last, int64_t column,
                                    bool mean, float* out, bool streams, int64_t ahead) {
  // Copies that stay in registers: GCC reads members again for every entry.
  const Index* const indices = f.indices;
  const uint64_t rows = static_cast<uint64_t>(f.rows), pitch = static_cast<uint64_t>(f.row_stride) * sizeof(Value);
  const uintptr_t table = reinterpret_cast<uintptr_t>(f.table + column);
  const int64_t asked = f.end - ahead;
  WideSums<kVectors> sums;
  int64_t outside = 0;
  for (int64_t p = first; p < last; ++p) {
    if (p < asked)
      sums.template ask_for<sizeof(Value)>(table +
                                           static_cast<uint64_t>(static_cast<int64_t>(indices[p + ahead])) * pitch);
    const uint64_t row = static_cast<uint64_t>(static_cast<int64_t>(indices[p]));
    if (row >= rows) [[unlikely]] {
      ++outside;
      continue;
    }
    const Value* const from = reinterpret_cast<const Value*>(table + row * pitch);
    sums.add(from);
  }
  if (mean && last - first > 1) sums.divide(static_cast<float>(last - first));
  if (streams) sums.stream(out);
  else sums.store(out);
  return outside;
}

// As FeatureRows::pool(), where has_wide_registers(cpu_target()) and has_wide_blocks(width).
template <class Value, class Index>
int64_t pool_wide(const FeatureRows<Value, Index>& f, int64_t first, int64_t last, bool mean, void* out, DType dtype,
                  int64_t at, bool streams, int64_t ahead) {
  int64_t outside = f.width > 0 ? 0 : f.each(first, last, false, ahead, [](int64_t, const Value*) {});
  each_wide_block(f.width, [&]<int kVectors>(int64_t column) __attribute__((always_inline)) {
    float sums[16 * kVectors];
    float* const to = dtype == DType::f32 ? static_cast<float*>(out) + at + column : sums;
    outside = pool_columns<kVectors>(f, first, last, column, mean, to, streams, ahead);
    if (to == sums) store_row(out, dtype, at + column, sums, 16 * kVectors);
  });
  return outside;
}

}  // namespace tutti::facets
