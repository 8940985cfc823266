#include "tutti/ops/quantized_linear.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/core/block_codec.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;
using quantized::sample_blocks;

std::span<const std::byte> row_bytes(const Tensor& blocks, int64_t row) {
  const int64_t nbytes = blocks.extents()[1];
  return {static_cast<const std::byte*>(blocks.raw_data()) + row * nbytes, static_cast<size_t>(nbytes)};
}
std::span<const float> row_of_x(const Tensor& x, int64_t row) {
  const int64_t k = x.extents()[1];
  return {x.data<float>() + row * k, static_cast<size_t>(k)};
}

void expect_equal(float found, float expected, const std::string& where) {
  const bool is_same =
      std::isnan(expected) ? std::isnan(found) : std::bit_cast<uint32_t>(found) == std::bit_cast<uint32_t>(expected);
  EXPECT_TRUE(is_same) << where << ": " << found << " instead of " << expected;
}

// The bits of the definition, which is written from numerics contract N12 in plain loops.
void expect_defined(const Tensor& x, const Tensor& blocks, BlockFormat format) {
  const Tensor y = quantized_linear(x, blocks, format);
  for (int64_t i = 0; i < y.extents()[0]; ++i)
    for (int64_t j = 0; j < y.extents()[1]; ++j)
      expect_equal(y.data<float>()[i * y.extents()[1] + j],
                   quantized::plain_product(format, row_bytes(blocks, j), row_of_x(x, i)),
                   fmt::format("{} {} at {}, {}", name_of(format), describe(x), i, j));
}

TEST(QuantizedLinear, HasTheBitsOfItsDefinitionInEveryFormat) {
  for (const BlockFormat format : quantized::block_formats()) {
    const int64_t block = row_of(format).elements;
    for (const int64_t m : {1, 2, 3, 4, 5, 8, 9, 13})
      for (const int64_t n : {1, 7, 8, 19, 33})
        for (const int64_t blocks : {1, 2, 8, 9, 21})
          expect_defined(sample_tensor(1, {m, blocks * block}), sample_blocks(2, format, n, blocks * block), format);
  }
}

// The op tells a format by the bytes of its blocks.
TEST(QuantizedLinear, FormatsDifferInTheBytesOfABlock) {
  for (const BlockFormat format : quantized::block_formats())
    for (const int64_t elements : {0, 512})
      EXPECT_EQ(quantized::format_of_blocks(quantized::bytes_in_blocks(sample_blocks(1, format, 2, elements), format)),
                format);
}

TEST(QuantizedLinear, HasTheseBitsInLongRowsAndManyRows) {
  expect_defined(sample_tensor(1, {2, 32 * 77}), sample_blocks(2, BlockFormat::q4_1, 40, 32 * 77), BlockFormat::q4_1);
  expect_defined(sample_tensor(1, {2, 256 * 35}), sample_blocks(2, BlockFormat::q6_k, 9, 256 * 35), BlockFormat::q6_k);
  expect_defined(sample_tensor(1, {1030, 32}), sample_blocks(2, BlockFormat::q5_0, 3, 32), BlockFormat::q5_0);
}

// The product of decoded weights in double precision. What rounding x to 8 bits may change: an element by half a code,
// which is 1/254 of the largest magnitude of its block.
TEST(QuantizedLinear, IsTheProductOfDecodedWeightsUpToTheRoundingOfX) {
  for (const BlockFormat format : quantized::block_formats()) {
    const int64_t block = row_of(format).elements, k = 11 * block, n = 13, m = 5;
    const Tensor x = sample_tensor(1, {m, k}), blocks = sample_blocks(2, format, n, k);
    const Tensor y = quantized_linear(x, blocks, format);
    std::vector<float> w(static_cast<size_t>(k));
    double worst = 0;
    for (int64_t j = 0; j < n; ++j) {
      decode_blocks(format, row_bytes(blocks, j), w);
      for (int64_t i = 0; i < m; ++i) {
        const std::span<const float> row = row_of_x(x, i);
        double exact = 0, allowed = 0, magnitudes = 0;
        for (size_t b = 0; b < 11; ++b) {
          double largest = 0;
          for (size_t e = b * static_cast<size_t>(block); e < (b + 1) * static_cast<size_t>(block); ++e)
            largest = std::max(largest, std::abs(static_cast<double>(row[e])));
          for (size_t e = b * static_cast<size_t>(block); e < (b + 1) * static_cast<size_t>(block); ++e) {
            exact += static_cast<double>(w[e]) * static_cast<double>(row[e]);
            allowed += std::abs(static_cast<double>(w[e])) * largest / 254;
            magnitudes += std::abs(static_cast<double>(w[e])) * largest;
          }
        }
        const double error = std::abs(static_cast<double>(y.data<float>()[i * n + j]) - exact);
        // And the roundings of f32, of which each chain has at most 22.
        ASSERT_LE(error, allowed + 1e-5 * magnitudes) << name_of(format) << " at " << i << ", " << j;
        worst = std::max(worst, error / allowed);
      }
    }
    EXPECT_GT(worst, 1e-4) << name_of(format) << ": x was not rounded";  // else the bound says nothing
  }
}

// Codes and scales at their limits with activations of +-127: sums of 16 bits that wrap or saturate would show.
TEST(QuantizedLinear, ItsIntegersAreExactAtTheirLimits) {
  for (const BlockFormat format : quantized::block_formats()) {
    const BlockFormatRow& shape = row_of(format);
    for (const int byte : {0x00, 0x0f, 0x7f, 0x80, 0x88, 0xf0, 0xff}) {
      const Tensor blocks = full({9, 2 * shape.nbytes}, byte, DType::u8);
      // Scales of 1 and a minimum of -2.
      for (int64_t b = 0; b < 18; ++b) {
        uint8_t* bytes = blocks.data<uint8_t>() + b * shape.nbytes;
        bytes[0] = bytes[2] = 0, bytes[1] = 0x3c, bytes[3] = 0xc0;
        if (format == BlockFormat::q6_k)
          bytes[0] = bytes[1] = bytes[2] = bytes[3] = static_cast<uint8_t>(byte), bytes[208] = 0, bytes[209] = 0x3c;
        if (format == BlockFormat::q5_0 || format == BlockFormat::q4_0 || format == BlockFormat::q8_0)
          bytes[2] = bytes[3] = static_cast<uint8_t>(byte);
      }
      for (const int pattern : {0, 1, 2}) {
        const Tensor x = Tensor::empty({1, 2 * shape.elements}, DType::f32);
        for (int64_t e = 0; e < x.numel(); ++e)
          x.data<float>()[e] = pattern == 0 || (pattern == 1 && e % 2 == 0) ? 3.0F : -3.0F;
        expect_defined(x, blocks, format);
      }
    }
  }
}

TEST(QuantizedLinear, TakesScalesOfEveryKind) {
  const uint16_t scales[] = {0x0001, 0x83ff, 0x0000, 0x8000, 0x7bff, 0xfbff, 0x7c00, 0xfc00, 0x7e00, 0x3c00};
  for (const BlockFormat format : quantized::block_formats()) {
    const BlockFormatRow& shape = row_of(format);
    const Tensor blocks = sample_blocks(3, format, std::size(scales), 2 * shape.elements);
    for (int64_t j = 0; j < std::ssize(scales); ++j) {
      uint8_t* block = blocks.data<uint8_t>() + j * 2 * shape.nbytes;
      std::memcpy(block + (format == BlockFormat::q6_k ? 208 : 0), &scales[j], 2);
    }
    for (const float factor : {1.0F, 1e-30F, 1e30F, 0.0F}) {
      const Tensor x = sample_tensor(4, {3, 2 * shape.elements});
      for (int64_t e = 0; e < x.numel(); ++e) x.data<float>()[e] *= factor;
      expect_defined(x, blocks, format);
    }
  }
}

TEST(QuantizedLinear, ActivationsThatAreNotFiniteMakeTheirRowNoNumber) {
  for (const BlockFormat format : {BlockFormat::q4_0, BlockFormat::q4_1, BlockFormat::q4_k, BlockFormat::q6_k}) {
    const int64_t k = 2 * row_of(format).elements;
    for (const float odd : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      const Tensor x = sample_tensor(1, {3, k});
      x.data<float>()[k + 17] = odd;
      const Tensor blocks = sample_blocks(2, format, 5, k), y = quantized_linear(x, blocks, format);
      for (int64_t j = 0; j < 5; ++j) {
        EXPECT_TRUE(std::isnan(y.data<float>()[5 + j]));
        EXPECT_TRUE(std::isfinite(y.data<float>()[j]) && std::isfinite(y.data<float>()[10 + j]));
      }
      expect_defined(x, blocks, format);
    }
  }
}

TEST(QuantizedLinear, ActivationsOfAnySizeAreTaken) {
  for (const float size : {std::numeric_limits<float>::max(), 1.5e-36F, 1.4e-36F, 1e-38F, 1e-44F, -0.0F}) {
    const Tensor x = full({2, 256}, static_cast<double>(size));
    for (int64_t e = 0; e < 200; ++e) x.data<float>()[e] *= -0.37F;
    expect_defined(x, sample_blocks(2, BlockFormat::q8_0, 4, 256), BlockFormat::q8_0);
    expect_defined(x, sample_blocks(2, BlockFormat::q5_k, 4, 256), BlockFormat::q5_k);
  }
  // A tie goes to the even code: 127 is one, so 0.5 and 1.5 are codes 0 and 2.
  const Tensor ties = zeros({1, 32}), ones_of_w = full({1, 34}, 1, DType::u8);
  ones_of_w.data<uint8_t>()[0] = 0, ones_of_w.data<uint8_t>()[1] = 0x3c;
  ties.data<float>()[0] = 127, ties.data<float>()[1] = 0.5F, ties.data<float>()[2] = 1.5F,
  ties.data<float>()[3] = -2.5F;
  EXPECT_EQ(quantized_linear(ties, ones_of_w, BlockFormat::q8_0).item(), 127 + 0 + 2 - 2);
}

TEST(QuantizedLinear, DoesNotDependOnThreadsRowsOfXOrRowsOfW) {
  RankContext& context = RankContext::current();
  for (const BlockFormat format : quantized::block_formats()) {
    const Tensor x = sample_tensor(1, {9, 2048}), blocks = sample_blocks(2, format, 203, 2048);
    context.set_threads(1);
    const Tensor all = quantized_linear(x, blocks, format);
    for (const int threads : {2, 4}) {
      context.set_threads(threads);
      expect_same_bits(quantized_linear(x, blocks, format), all);
    }
    context.set_threads(0);
    for (int64_t i = 0; i < 9; ++i)
      expect_same_bits(quantized_linear(narrow(x, 0, i, 1), blocks, format), contiguous(narrow(all, 0, i, 1)));
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>{0, 101}, {101, 102}, {5, 1}, {203, 0}})
      expect_same_bits(quantized_linear(x, narrow(blocks, 0, first, count), format),
                       contiguous(narrow(all, 1, first, count)));
  }
}

TEST(QuantizedLinear, TakesNarrowFloatsStridesAndLeadingDims) {
  const Tensor blocks = sample_blocks(2, BlockFormat::q4_k, 11, 512), wide = sample_tensor(1, {6, 512});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const Tensor x = cast(wide, dtype);
    const Tensor exact = quantized_linear(cast(x, DType::f32), blocks, BlockFormat::q4_k);
    expect_same_bits(quantized_linear(x, blocks, BlockFormat::q4_k, DType::f32), exact);
    expect_same_bits(quantized_linear(x, blocks, BlockFormat::q4_k), cast(exact, dtype));
  }
  const Tensor y = quantized_linear(wide, blocks, BlockFormat::q4_k);
  expect_same_bits(quantized_linear(facets::strided_copy(wide), facets::strided_copy(blocks), BlockFormat::q4_k), y);
  const Tensor cube = quantized_linear(reshape(wide, {2, 3, 512}), blocks, BlockFormat::q4_k);
  EXPECT_EQ(cube.extents(), (Extents{2, 3, 11}));
  expect_same_bits(reshape(cube, {6, 11}), y);
  expect_same_bits(quantized_linear(select(wide, 0, 4), blocks, BlockFormat::q4_k), contiguous(select(y, 0, 4)));
}

TEST(QuantizedLinear, TakesSizesOfZero) {
  const Tensor none = quantized_linear(zeros({2, 0}), zeros({9, 0}, DType::u8), BlockFormat::q5_1);
  for (int64_t i = 0; i < 18; ++i) expect_equal(none.data<float>()[i], -0.0F, "no inner size");
  EXPECT_EQ(quantized_linear(zeros({0, 32}), zeros({3, 34}, DType::u8), BlockFormat::q8_0).extents(), (Extents{0, 3}));
  EXPECT_EQ(quantized_linear(zeros({2, 32}), zeros({0, 34}, DType::u8), BlockFormat::q8_0).extents(), (Extents{2, 0}));
}

TEST(QuantizedLinear, SaysWhatIsWrong) {
  const Tensor blocks = sample_blocks(1, BlockFormat::q4_k, 2, 512);
  EXPECT_EQ(message_of([&] { quantized_linear(zeros({2, 896}), blocks, BlockFormat::q4_k); }),
            "quantized_linear: x is [2, 896], and rows of 288 bytes hold 512 elements of Q4_K; expected x [..., 512]");
  EXPECT_EQ(message_of([&] { quantized_linear(zeros({2, 512}), blocks, BlockFormat::q6_k); }),
            "quantized_linear: rows of 288 bytes are not whole Q6_K blocks of 210 bytes");
  EXPECT_EQ(message_of([&] { quantized_linear(zeros({2, 512}), blocks, BlockFormat::iq4_xs); }),
            "quantized_linear: weights of IQ4_XS stay quantized in no op; expected Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q4_K Q5_K "
            "or Q6_K");
  EXPECT_EQ(message_of([&] { quantized_linear(zeros({2, 512}), zeros({2, 512}), BlockFormat::q4_k); }),
            "quantized_linear: the blocks are [2, 512] f32 cpu; expected u8 [rows, bytes of a row]");
  EXPECT_EQ(message_of([&] { quantized_linear(zeros({2, 512}, DType::i8), blocks, BlockFormat::q4_k); }),
            "quantized_linear: x is [2, 512] i8 cpu; expected f32, bf16 or f16");
}

}  // namespace
}  // namespace tutti
