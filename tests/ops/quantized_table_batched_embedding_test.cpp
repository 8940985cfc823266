#include "tutti/ops/quantized_table_batched_embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

using enum RowQuantization;

// A table for each format, in rows of bytes and as the numbers that they are.
struct CodedTables {
  std::vector<QuantizedTable> codes;
  std::vector<Tensor> numbers;
};
CodedTables coded(const std::vector<int64_t>& widths) {
  constexpr RowQuantization formats[] = {fused_8bit_rowwise, fused_4bit_rowwise_sbhalf, fused_8bit_rowwise_sbhalf_front,
                                         fused_4bit_rowwise_sbhalf_front};
  CodedTables all;
  for (size_t t = 0; t < widths.size(); ++t) {
    const Tensor rows = quantize_rows(facets::sample_tensor(t + 1, {50, widths[t]}), formats[t % 4]);
    all.codes.push_back({rows, formats[t % 4], widths[t]});
    all.numbers.push_back(dequantize_rows(rows, formats[t % 4], widths[t]));
  }
  return all;
}
TableBatch drawn_batch(uint64_t seed, int64_t features, int64_t bags, DType dtype) {
  const Tensor lengths = facets::sample_tensor(seed, {features * bags}, DType::i64, 0, 9);
  std::vector<int64_t> offsets = {0};
  for (int64_t k = 0; k < lengths.numel(); ++k) offsets.push_back(offsets.back() + lengths.data<int64_t>()[k]);
  return {.indices = facets::sample_tensor(seed + 1, {offsets.back()}, dtype, 0, 50),
          .offsets = Tensor::of<int64_t>(offsets)};
}

TEST(QuantizedTableBatchedEmbedding, HasTheBitsOfLookupsInTheNumbersOnAnyNumberOfThreads) {
  const CodedTables tables = coded({16, 32, 64, 128, 130, 21, 7, 70});
  for (const DType index : {DType::i64, DType::i32}) {
    TableBatch batch = drawn_batch(3, 8, 40, index);
    const Tensor weights = facets::sample_tensor(5, batch.indices.extents());
    for (const bool weighted : {false, true}) {
      batch.per_sample_weights = weighted ? weights : Tensor{};
      for (const TablePooling pooling : {TablePooling::sum, TablePooling::mean}) {
        for (const TableOutput output : {TableOutput::as_tables, TableOutput::f16}) {
          const TableBatchOptions options{.pooling = pooling, .output = output};
          const Tensor expected = table_batched_embedding_bags(tables.numbers, batch, options).values;
          for (const int threads : {1, 2, 4}) {
            RankContext::current().set_threads(threads);
            expect_same_bits(quantized_table_batched_embedding_bags(tables.codes, batch, options).values, expected);
          }
          RankContext::current().set_threads(0);
        }
      }
    }
  }
}

TEST(QuantizedTableBatchedEmbedding, GivesRowsWithoutPoolingAndBagsOfTheirOwn) {
  const CodedTables tables = coded({24, 24});
  TableBatch batch = drawn_batch(7, 3, 10, DType::i64);
  batch.features = {1, 0, 1};
  const TableBatchOptions rows{.pooling = TablePooling::none};
  expect_same_bits(quantized_table_batched_embedding_bags(tables.codes, batch, rows).values,
                   table_batched_embedding_bags(tables.numbers, batch, rows).values);
  batch.bags = {4, 20, 6};
  expect_same_bits(quantized_table_batched_embedding_bags(tables.codes, batch).values,
                   table_batched_embedding_bags(tables.numbers, batch).values);
  const std::vector<QuantizedTable> view = {{slice(tables.codes[0].rows, 0, 0, 50, 2), tables.codes[0].format, 24}};
  const TableBatch few{.indices = Tensor::of<int64_t>({24, 0, 3}), .offsets = Tensor::of<int64_t>({0, 3})};
  expect_same_bits(quantized_table_batched_embedding_bags(view, few).values,
                   table_batched_embedding_bags(std::vector{slice(tables.numbers[0], 0, 0, 50, 2)}, few).values);
}

TEST(QuantizedTableBatchedEmbedding, LeavesOutPrunedRowsInEveryModeAndTellsOfOthersOutOfRange) {
  const CodedTables tables = coded({16});
  const TableBatch pruned{.indices = Tensor::of<int64_t>({4, -1, 7, -1}), .offsets = Tensor::of<int64_t>({0, 3, 4})},
      kept{.indices = Tensor::of<int64_t>({4, 7}), .offsets = Tensor::of<int64_t>({0, 2, 2})};
  for (const BoundsCheck bounds : {BoundsCheck::fatal, BoundsCheck::ignore}) {
    const TableBatchResult r = quantized_table_batched_embedding_bags(tables.codes, pruned, {.bounds = bounds});
    expect_same_bits(r.values, quantized_table_batched_embedding_bags(tables.codes, kept).values);
    EXPECT_EQ(IndexReport::of(r.report).count, 0);
  }
  const Tensor mean =
      quantized_table_batched_embedding_bags(tables.codes, pruned, {.pooling = TablePooling::mean}).values;
  const Tensor sum = quantized_table_batched_embedding_bags(tables.codes, kept).values;
  EXPECT_EQ(mean.data<float>()[0], sum.data<float>()[0] / 3);  // a mean counts them
  const TableBatch bad{.indices = Tensor::of<int64_t>({4, -1, 50, -2}), .offsets = Tensor::of<int64_t>({0, 4})};
  EXPECT_EQ(message_of([&] { quantized_table_batched_embedding_bags(tables.codes, bad); }),
            "quantized_table_batched_embedding_bags: 2 of the indices are out of range; the first is 50 of feature 0, "
            "bag 0 (position 2), whose table has 50 rows; legal: 0 to 49");
  const TableBatchResult r = quantized_table_batched_embedding_bags(tables.codes, bad, {.bounds = BoundsCheck::ignore});
  EXPECT_EQ(IndexReport::of(r.report).count, 2);
  EXPECT_EQ(IndexReport::of(r.report).position, 2);
}

TEST(QuantizedTableBatchedEmbedding, NamesRowsOfWrongSizes) {
  const TableBatch batch{.indices = Tensor::of<int64_t>({0}), .offsets = Tensor::of<int64_t>({0, 1})};
  const auto with = [&](const Tensor& rows, int64_t columns) {
    return message_of([&] {
      quantized_table_batched_embedding_bags(std::vector<QuantizedTable>{{rows, fused_8bit_rowwise, columns}}, batch);
    });
  };
  EXPECT_EQ(with(Tensor::empty({3, 20}, DType::u8), 16),
            "quantized_table_batched_embedding_bags: table 0 has rows of 20 bytes; expected 24, for 16 columns");
  EXPECT_EQ(with(Tensor::empty({3, 20}, DType::f32), 16),
            "quantized_table_batched_embedding_bags: table 0 is [3, 20] f32 cpu; expected u8 [rows, bytes]");
  EXPECT_EQ(with({}, 16), "quantized_table_batched_embedding_bags: table 0 has no rows");
}

// Results of FBGEMM's inference module, whose sums have other roundings.
TEST(QuantizedTableBatchedEmbedding, HasTheResultsOfFbgemm) {
  const auto word = [](uint64_t a, uint64_t b) {
    return ((a * 2654435761u + b * 40503 + 12345) % (uint64_t{1} << 32)) >> 8;
  };
  std::vector<int64_t> indices, offsets = {0};
  for (uint64_t b = 0; b < 6; ++b) offsets.push_back(offsets.back() + static_cast<int64_t>(word(b, 7) % 5));
  for (uint64_t p = 0; p < static_cast<uint64_t>(offsets.back()); ++p)
    indices.push_back(static_cast<int64_t>(word(p, 9) % 16));
  const TableBatch batch{.indices = Tensor::of<int64_t>(indices), .offsets = Tensor::of<int64_t>(offsets)};
  const std::pair<double, double> scales[] = {{1, 0}, {1e-3, 0.5}, {100, -30}, {0, 0.1},
                                              {0, 0}, {1e-9, 0},   {3e4, 0},   {0, -1.0 / 3}};
  const Tensor table = Tensor::empty({16, 16}, DType::f32);
  for (int64_t i = 0; i < 256; ++i)
    table.data<float>()[i] =
        static_cast<float>(static_cast<double>(word(static_cast<uint64_t>(i), 16)) / (1 << 23) - 1) *
            static_cast<float>(scales[i / 16 % 8].first) +
        static_cast<float>(scales[i / 16 % 8].second);
  std::ifstream file(TUTTI_SOURCE_DIR "/tests/golden/fbgemm_rows.txt");
  int found = 0;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t count;
    words >> name;
    if (!name.starts_with("lookup_")) continue;
    words >> count;
    const RowQuantization format =
        name == "lookup_int8" ? fused_8bit_rowwise_sbhalf_front : fused_4bit_rowwise_sbhalf_front;
    const std::vector<QuantizedTable> tables = {{quantize_rows(table, format), format, 16}};
    const Tensor y = quantized_table_batched_embedding_bags(tables, batch).values;
    ASSERT_EQ(y.numel(), count);
    // Terms of 3e4 meet those of 1.
    for (int64_t i = 0; i < count; ++i) {
      double value;
      words >> value;
      ASSERT_NEAR(y.data<float>()[i], value, 1e-5 * (1 + std::fabs(value)) + 4e-3 * (std::fabs(value) > 100))
          << name << " " << i;
    }
    ++found;
  }
  EXPECT_EQ(found, 2);
}

}  // namespace
}  // namespace tutti
