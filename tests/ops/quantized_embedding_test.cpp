#include "tutti/ops/quantized_embedding.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/quantized/blocks.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using facets::sample_tensor;
using quantized::sample_blocks;

// Every code and every pair of 6-bit scales, by the formulas of ggml's page of formats in double precision: at most one
// rounding, so f32 of the exact value is what is decoded.
TEST(Dequantize, HasTheValuesOfTheFormulasForAllCodes) {
  const Tensor q8 = full({256, 34}, 0, DType::u8), q4 = full({256, 18}, 0, DType::u8);
  for (int64_t code = 0; code < 256; ++code) {
    for (const auto& [t, nbytes] : {std::pair<Tensor, int64_t>{q8, 34}, {q4, 18}}) {
      uint8_t* block = t.data<uint8_t>() + code * nbytes;
      block[0] = 0x66, block[1] = 0xae;  // -0.09997558593750
      std::memset(block + 2, static_cast<int>(code), static_cast<size_t>(nbytes - 2));
    }
  }
  const double d = -0.0999755859375;
  const Tensor of_q8 = dequantize(q8, BlockFormat::q8_0), of_q4 = dequantize(q4, BlockFormat::q4_0);
  for (int64_t code = 0; code < 256; ++code)
    for (int64_t e = 0; e < 32; ++e) {
      EXPECT_EQ(of_q8.data<float>()[code * 32 + e], static_cast<float>(d * static_cast<int8_t>(code)));
      const int64_t nibble = e < 16 ? code % 16 : code / 16;
      EXPECT_EQ(of_q4.data<float>()[code * 32 + e], static_cast<float>(d * static_cast<double>(nibble - 8)));
    }
}

TEST(QuantizedEmbedding, IsTheLookupInTheDecodedTable) {
  RankContext& context = RankContext::current();
  for (const BlockFormat format : quantized::block_formats()) {
    const Tensor table = sample_blocks(1, format, 50, 512), decoded = dequantize(table, format);
    const Tensor tokens = sample_tensor(2, {7, 9}, DType::i64, 0, 50);
    for (const int threads : {1, 2, 4}) {
      context.set_threads(threads);
      expect_same_bits(quantized_embedding(table, tokens, format), embedding(decoded, tokens));
      expect_same_bits(quantized_embedding(table, tokens, format, DType::bf16),
                       cast(embedding(decoded, tokens), DType::bf16));
    }
    context.set_threads(0);
    expect_same_bits(quantized_embedding(facets::strided_copy(table), facets::strided_copy(tokens), format),
                     embedding(decoded, tokens));
  }
}

TEST(QuantizedEmbedding, TakesSizesOfZero) {
  const Tensor table = sample_blocks(1, BlockFormat::q4_k, 3, 256);
  EXPECT_EQ(quantized_embedding(table, zeros({0, 2}, DType::i64), BlockFormat::q4_k).extents(), (Extents{0, 2, 256}));
  EXPECT_EQ(dequantize(narrow(table, 0, 1, 0), BlockFormat::q4_k).extents(), (Extents{0, 256}));
  EXPECT_EQ(dequantize(zeros({3, 0}, DType::u8), BlockFormat::q8_0).extents(), (Extents{3, 0}));
}

TEST(QuantizedEmbedding, SaysWhatIsWrong) {
  const Tensor table = sample_blocks(1, BlockFormat::q8_0, 3, 64);
  EXPECT_EQ(
      message_of([&] { quantized_embedding(table, full({2}, 3, DType::i64), BlockFormat::q8_0); }),
      "quantized_embedding: index 3 at position [0] is out of range for 3 rows of the table [3, 68] u8 cpu; legal: "
      "0 to 2");
  EXPECT_EQ(message_of([&] { quantized_embedding(table, zeros({2}), BlockFormat::q8_0); }),
            "quantized_embedding: the indices are [2] f32 cpu; expected i64 or i32");
  EXPECT_EQ(message_of([&] { dequantize(table, BlockFormat::q6_k); }),
            "dequantize: rows of 68 bytes are not whole Q6_K blocks of 210 bytes");
}

}  // namespace
}  // namespace tutti
