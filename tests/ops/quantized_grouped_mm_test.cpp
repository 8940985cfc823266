#include "tutti/ops/quantized_grouped_mm.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/quantized_embedding.h"
#include "tutti/ops/quantized_linear.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;

Tensor matrices(uint64_t seed, BlockFormat format, const Extents& gnk) {
  const Tensor rows = quantized::sample_blocks(seed, format, gnk[0] * gnk[1], gnk[2]);
  return reshape(rows, {gnk[0], gnk[1], rows.size(1)});
}

// The rows of each group as quantized_linear() computes them, and -0.0 behind the last.
void expect_products(const Tensor& y, const Tensor& x, const Tensor& blocks, const std::vector<int64_t>& ends,
                     BlockFormat format, const std::string& what = "") {
  int64_t begin = 0;
  for (size_t g = 0; g < ends.size(); ++g) {
    const int64_t rows = ends[g] - begin;
    expect_same_bits(contiguous(narrow(y, 0, begin, rows)),
                     quantized_linear(narrow(x, 0, begin, rows), select(blocks, 0, static_cast<int64_t>(g)), format),
                     fmt::format("{} group {}", what, g));
    begin = ends[g];
  }
  const int64_t rest = x.extents()[0] - begin;
  expect_same_bits(contiguous(narrow(y, 0, begin, rest)), full({rest, blocks.size(1)}, -0.0, y.dtype()), what);
}

TEST(QuantizedGroupedMm, HasTheBitsOfOneProductForEachGroup) {
  for (const BlockFormat format : quantized::block_formats()) {
    for (const int64_t groups : {1, 2, 7}) {
      const int64_t rows = 13, in = 9 * row_of(format).elements;
      const Tensor x = sample_tensor(1, {rows, in}), blocks = matrices(2, format, {groups, 11, in});
      for (size_t round = 0; round < 4; ++round) {
        std::vector<int64_t> ends(static_cast<size_t>(groups));
        for (size_t g = 0; g < ends.size(); ++g) ends[g] = static_cast<int64_t>(g * 5 + round * 3) % (rows + 1);
        std::sort(ends.begin(), ends.end());
        if (round == 0) ends.assign(ends.size(), 0);  // nobody has rows
        if (round == 1) ends.assign(ends.size(), rows), ends[0] = 1;
        expect_products(quantized_grouped_mm(x, blocks, Tensor::of(ends), format), x, blocks, ends, format,
                        fmt::format("{} {}", name_of(format), round));
      }
    }
  }
}

TEST(QuantizedGroupedMm, TakesNarrowFloatsStridesAndHalvesOfMatrices) {
  const std::vector<int64_t> ends{2, 2, 5};
  const Tensor wide = sample_tensor(1, {6, 512}), both = matrices(2, BlockFormat::q4_k, {3, 10, 512});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = cast(wide, dtype);
    const Tensor exact = quantized_grouped_mm(cast(x, DType::f32), both, Tensor::of(ends), BlockFormat::q4_k);
    expect_same_bits(quantized_grouped_mm(x, both, Tensor::of(ends), BlockFormat::q4_k, DType::f32), exact);
    expect_same_bits(quantized_grouped_mm(x, both, Tensor::of(ends), BlockFormat::q4_k), cast(exact, dtype));
  }
  // As gates and the others lie where a file holds both in one tensor.
  for (const int64_t first : {0, 5}) {
    const Tensor half = narrow(both, 1, first, 5);
    expect_products(quantized_grouped_mm(facets::strided_copy(wide), half, Tensor::of(ends), BlockFormat::q4_k), wide,
                    half, ends, BlockFormat::q4_k);
  }
}

TEST(QuantizedGroupedMm, DoesNotDependOnThreads) {
  const Tensor x = sample_tensor(1, {70, 2304}), blocks = matrices(2, BlockFormat::q6_k, {4, 203, 2304}),
               offsets = Tensor::of<int32_t>({1, 60, 60, 70});
  RankContext one({.threads = 1});
  Tensor expected;
  {
    const RankContext::Scope scope(one);
    expected = quantized_grouped_mm(x, blocks, offsets, BlockFormat::q6_k);
  }
  for (const int threads : {2, 3, 4}) {
    RankContext context({.threads = threads});
    const RankContext::Scope scope(context);
    expect_same_bits(quantized_grouped_mm(x, blocks, offsets, BlockFormat::q6_k), expected);
  }
}

TEST(QuantizedGroupedMm, TakesSizesOfZero) {
  const auto none = [](const Extents& gnk, int64_t rows, const std::vector<int64_t>& ends) {
    return quantized_grouped_mm(zeros({rows, gnk[2]}), matrices(1, BlockFormat::q8_0, gnk), Tensor::of(ends),
                                BlockFormat::q8_0);
  };
  EXPECT_EQ(none({2, 3, 32}, 0, {0, 0}).extents(), (Extents{0, 3}));
  EXPECT_EQ(none({2, 0, 32}, 4, {1, 3}).extents(), (Extents{4, 0}));
  expect_same_bits(none({0, 3, 32}, 2, {}), full({2, 3}, -0.0));
  expect_same_bits(none({1, 3, 0}, 2, {2}), full({2, 3}, -0.0));
}

TEST(QuantizedGroupedMm, SaysWhatIsWrong) {
  const Tensor x = zeros({4, 64}), blocks = matrices(1, BlockFormat::q4_0, {2, 3, 64});
  const auto ending = [&](std::vector<int64_t> ends) {
    return message_of([&] { quantized_grouped_mm(x, blocks, Tensor::of(ends), BlockFormat::q4_0); });
  };
  EXPECT_EQ(ending({3, 5}).rfind("quantized_grouped_mm: group 1 ends at 5, beyond the 4 elements", 0), 0U)
      << ending({3, 5});
  EXPECT_EQ(ending({3, 2}).rfind("quantized_grouped_mm: group 1 ends at 2, before group 0, which ends at 3", 0), 0U);
  EXPECT_EQ(ending({4}),
            "quantized_grouped_mm: the offsets are [1], the blocks [2, 3, 36]; expected the end of each group");
  EXPECT_EQ(
      message_of([&] { quantized_grouped_mm(zeros({4, 32}), blocks, Tensor::of<int64_t>({1, 4}), BlockFormat::q4_0); }),
      "quantized_grouped_mm: x is [4, 32], and rows of 36 bytes hold 64 elements of Q4_0; expected x [rows, 64]");
  EXPECT_EQ(message_of(
                [&] { quantized_grouped_mm(x, select(blocks, 0, 0), Tensor::of<int64_t>({1, 4}), BlockFormat::q4_0); }),
            "quantized_grouped_mm: the blocks are [3, 36] u8 cpu; expected u8 [matrices, rows, bytes of a row]");
}

TEST(Dequantize, TakesMatricesOfAllGroups) {
  const Tensor blocks = matrices(2, BlockFormat::q5_k, {3, 4, 512}), all = dequantize(blocks, BlockFormat::q5_k);
  EXPECT_EQ(all.extents(), (Extents{3, 4, 512}));
  for (int64_t g = 0; g < 3; ++g)
    expect_same_bits(contiguous(select(all, 0, g)), dequantize(select(blocks, 0, g), BlockFormat::q5_k));
  expect_same_bits(dequantize(narrow(blocks, 1, 1, 2), BlockFormat::q5_k), contiguous(narrow(all, 1, 1, 2)));
}

}  // namespace
}  // namespace tutti
