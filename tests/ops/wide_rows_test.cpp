#include "tutti/ops/tables/wide_rows.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <vector>

#include "tests/support/same_bits.h"
#include "tutti/codegen/cpu_target.h"
#include "tutti/core/dtype.h"
#include "tutti/ops/cat.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"
#include "tutti/ops/table_batched_backward.h"
#include "tutti/ops/tables/wide_code_rows.h"

namespace tutti {
namespace {

template <class Value>
Value rounded(float x) {
  if constexpr (std::is_same_v<Value, bfloat16>) return to_bfloat16(x);
  else if constexpr (std::is_same_v<Value, float16>) return to_float16(x);
  else return x;
}

// Bags of 0 to 39 rows of `width` columns of a matrix that has more columns, pooled by both forms.
template <class Value, class Index>
void pool_by_both(int64_t width, bool mean, DType dtype) {
  SCOPED_TRACE(testing::Message() << "width " << width << (mean ? ", mean" : "") << " to " << name_of(dtype));
  uint64_t state = static_cast<uint64_t>(width);
  const auto random = [&] { return (state = state * 6364136223846793005u + 1442695040888963407u) >> 33; };
  const int64_t rows = 37, stride = width + 3, entries = 300;
  std::vector<Value> table(static_cast<size_t>(rows * stride + 1));
  for (Value& x : table)
    x = rounded<Value>(std::ldexp(static_cast<float>(random() % 2001) - 1000, int(random() % 60) - 40));
  std::vector<Index> indices;
  for (int64_t p = 0; p < entries; ++p) {
    const Index wrong[] = {-1, static_cast<Index>(rows), std::numeric_limits<Index>::min(),
                           std::numeric_limits<Index>::max()};
    indices.push_back(random() % 16 == 0 ? wrong[random() % 4] : static_cast<Index>(random() % rows));
  }
  const facets::FeatureRows<Value, Index> f{table.data() + 1, rows, stride, width, indices.data(), entries, nullptr};
  for (int64_t first = 0; first < entries;) {
    const int64_t last = std::min<int64_t>(first + static_cast<int64_t>(random() % 40), entries);
    // One element before and behind, which neither may touch.
    std::vector<std::byte> narrow(static_cast<size_t>((width + 2) * itemsize(dtype)), std::byte{0x5a}), wide = narrow;
    EXPECT_EQ(pool_wide(f, first, last, mean, wide.data(), dtype, 1, false, f.far()),
              f.pool(first, last, mean, narrow.data(), dtype, 1, false, f.far()));
    ASSERT_EQ(std::memcmp(wide.data(), narrow.data(), wide.size()), 0) << "entries " << first << " to " << last;
    first = last + (random() % 8 == 0);
  }
}

template <class Value>
void pool_by_both() {
  if (!codegen::has_wide_registers(codegen::cpu_target()))
    GTEST_SKIP() << "this processor has no registers of 512 bits";
  for (const int64_t width : {0, 16, 32, 48, 64, 80, 96, 112, 128, 144, 240, 256}) {
    for (const bool mean : {false, true}) {
      pool_by_both<Value, int64_t>(width, mean, DType::f32);
      pool_by_both<Value, int32_t>(width, mean, DType::bf16);
      pool_by_both<Value, int64_t>(width, mean, DType::f16);
    }
  }
}

TEST(WideRows, PoolFloatsToTheBitsOfNarrowOnes) { pool_by_both<float>(); }
TEST(WideRows, PoolHalvesToTheBitsOfNarrowOnes) { pool_by_both<float16>(); }
TEST(WideRows, PoolBfloatsToTheBitsOfNarrowOnes) { pool_by_both<bfloat16>(); }

TEST(WideRows, PoolCodesToTheBitsOfNarrowOnes) {
  if (!codegen::has_wide_registers(codegen::cpu_target()))
    GTEST_SKIP() << "this processor has no registers of 512 bits";
  using enum RowQuantization;
  for (const RowQuantization format : {fused_8bit_rowwise, fused_4bit_rowwise_sbhalf, fused_8bit_rowwise_sbhalf_front,
                                       fused_4bit_rowwise_sbhalf_front}) {
    for (const int64_t width : {16, 32, 48, 64, 112, 128, 176, 256}) {
      const Tensor table = quantize_rows(facets::sample_tensor(static_cast<uint64_t>(width), {29, width}), format),
                   indices = facets::sample_tensor(1, {200}, DType::i64, -2, 32),
                   factors = facets::sample_tensor(2, {200});
      for (const bool weighted : {false, true}) {
        const facets::CodeRowLayout layout(format, width);
        const facets::CodeRows<int64_t> rows{{table.data<uint8_t>(), 29, table.strides()[0], layout.nbytes,
                                              indices.data<int64_t>(), 200, weighted ? factors.data<float>() : nullptr},
                                             layout,
                                             width};
        for (int64_t first = 0; first < 200; first += 23) {
          const int64_t last = std::min<int64_t>(first + 23, 200);
          std::vector<float> narrow(static_cast<size_t>(width)), wide = narrow;
          EXPECT_EQ(pool_wide(rows, first, last, weighted, wide.data(), DType::f32, 0, 16),
                    rows.pool(first, last, weighted, narrow.data(), DType::f32, 0, 16));
          ASSERT_EQ(std::memcmp(wide.data(), narrow.data(), wide.size() * sizeof(float)), 0)
              << "width " << width << ", format " << static_cast<int>(format) << ", entries from " << first;
        }
      }
    }
  }
}

// Gradients of 8 columns are summed in narrow registers, those of multiples of 16 in wide ones where there are any. Two
// features share the table, over one or three shards.
TEST(WideRows, SumGradientsToTheBitsOfTheirColumns) {
  for (const int64_t width : {16, 48, 112, 128, 240}) {
    for (const auto& [rows, bags, shards] : std::vector<std::array<int64_t, 3>>{
             {7, 300, 1}, {7, 150, 3}, {5000, 300, 1}, {5000, 140, 3}, {7, 1, 1}, {1, 2, 3}, {7, 0, 1}}) {
      std::vector<TableUse> whole;
      for (int64_t s = 0; s < shards; ++s) {
        const uint64_t seed = static_cast<uint64_t>(10 * s + 1);
        std::vector<int64_t> offsets;
        for (int64_t b = 0; b <= 2 * bags; ++b) offsets.push_back(b * 7 / 2);
        whole.push_back(
            {facets::sample_tensor(seed, {bags, 2 * width}),
             {.indices = facets::sample_tensor(seed + 1, {offsets.back()}, DType::i64, 0, static_cast<double>(rows)),
              .offsets = Tensor::of<int64_t>(offsets),
              .features = {0, 0}}});
      }
      const Tensor sums = table_batched_backward(whole, {0, {width}, rows});
      for (int64_t column = 0; column < width; column += 8) {
        std::vector<TableUse> part = whole;
        for (TableUse& use : part)
          use.grad = cat({narrow(use.grad, 1, column, 8), narrow(use.grad, 1, width + column, 8)}, 1);
        expect_same_bits(
            clone(narrow(sums, 1, column, 8)), table_batched_backward(part, {0, {8}, rows}),
            fmt::format("width {}, {} rows, {} bags, {} shards, column {}", width, rows, bags, shards, column));
      }
    }
  }
}

TEST(WideRows, StreamTheSameBits) {
  if (!codegen::has_wide_registers(codegen::cpu_target()))
    GTEST_SKIP() << "this processor has no registers of 512 bits";
  std::vector<float> table(10 * 96);
  for (size_t i = 0; i < table.size(); ++i) table[i] = 1 / (1 + static_cast<float>(i));
  const std::vector<int64_t> indices = {3, 3, 9, 0, 1};
  const facets::FeatureRows<float, int64_t> f{table.data(), 10, 96, 96, indices.data(), 5, nullptr};
  alignas(64) float streamed[96], stored[96];
  pool_wide(f, 0, 5, true, streamed, DType::f32, 0, true, f.far());
  _mm_sfence();
  pool_wide(f, 0, 5, true, stored, DType::f32, 0, false, f.far());
  EXPECT_EQ(std::memcmp(streamed, stored, sizeof(stored)), 0);
}

}  // namespace
}  // namespace tutti
