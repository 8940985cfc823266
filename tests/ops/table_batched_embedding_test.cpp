#include "tutti/ops/table_batched_embedding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/message_of.h"
#include "tests/support/same_bits.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/copy.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/embedding_bag.h"
#include "tutti/ops/engine/facets.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/permute.h"
#include "tutti/ops/slice.h"
#include "tutti/runtime/rank_context.h"

namespace tutti {
namespace {

std::vector<float> floats(const Tensor& t) {
  const Tensor dense = to_contiguous(t);
  return {dense.data<float>(), dense.data<float>() + dense.numel()};
}

// Rows [1 10] [2 20] [4 40], and [100] [200].
std::vector<Tensor> two_tables() {
  return {Tensor::of<float>({1, 10, 2, 20, 4, 40}, {3, 2}), Tensor::of<float>({100, 200}, {2, 1})};
}
// Features 0 and 2 look up table 0, feature 1 table 1; two bags each.
TableBatch three_features() {
  return {.indices = Tensor::of<int64_t>({0, 2, 1, 0, 1, 1, 2}),
          .offsets = Tensor::of<int64_t>({0, 2, 2, 3, 5, 6, 7}),
          .features = {0, 1, 0}};
}

TEST(TableBatchedEmbedding, PoolsTheBagsOfEveryFeatureSideBySide) {
  TableBatch batch = three_features();
  EXPECT_EQ(floats(table_batched_embedding_bags(two_tables(), batch).values),
            (std::vector<float>{5, 50, 200, 2, 20, 0, 0, 300, 4, 40}));
  EXPECT_EQ(floats(table_batched_embedding_bags(two_tables(), batch, {.pooling = TablePooling::mean}).values),
            (std::vector<float>{2.5f, 25, 200, 2, 20, 0, 0, 150, 4, 40}));
  batch.per_sample_weights = Tensor::of<float>({2, 1, 1, 0.5f, 0.25f, 3, -1});
  EXPECT_EQ(floats(table_batched_embedding_bags(two_tables(), batch).values),
            (std::vector<float>{6, 60, 200, 6, 60, 0, 0, 100, -4, -40}));
  // A mean divides by the number of entries, whatever they weigh.
  EXPECT_EQ(floats(table_batched_embedding_bags(two_tables(), batch, {.pooling = TablePooling::mean}).values),
            (std::vector<float>{3, 30, 200, 6, 60, 0, 0, 50, -4, -40}));
}

TEST(TableBatchedEmbedding, PutsFeaturesWithBagsOfTheirOwnOneAfterAnother) {
  const TableBatch batch{.indices = Tensor::of<int32_t>({0, 2, 1, 0, 1, 2}),
                         .offsets = Tensor::of<int32_t>({0, 2, 2, 4, 5, 5, 6}),
                         .features = {0, 1, 0},
                         .bags = {2, 3, 1}};
  EXPECT_EQ(floats(table_batched_embedding_bags(two_tables(), batch).values),
            (std::vector<float>{5, 50, 0, 0, 300, 200, 0, 4, 40}));
}

TEST(TableBatchedEmbedding, GivesARowForEachIndexWithoutPooling) {
  const Tensor first = two_tables()[0], second = Tensor::of<float>({7, 8, 9, 6}, {2, 2});
  const TableBatch batch{.indices = Tensor::of<int64_t>({0, 2, 1, 1}), .offsets = Tensor::of<int64_t>({0, 2, 4})};
  EXPECT_EQ(
      floats(table_batched_embedding_bags(std::vector{first, second}, batch, {.pooling = TablePooling::none}).values),
      (std::vector<float>{1, 10, 4, 40, 9, 6, 9, 6}));
}

// Features with their bags drawn by a seed.
TableBatch drawn(uint64_t seed, int64_t features, int64_t bags, int64_t longest, int64_t rows, DType dtype) {
  const Tensor lengths =
      facets::sample_tensor(seed, {features * bags}, DType::i64, 0, static_cast<double>(longest) + 1);
  std::vector<int64_t> offsets = {0};
  for (int64_t k = 0; k < lengths.numel(); ++k) offsets.push_back(offsets.back() + lengths.data<int64_t>()[k]);
  return {.indices = facets::sample_tensor(seed + 1, {offsets.back()}, dtype, 0, static_cast<double>(rows)),
          .offsets = Tensor::of<int64_t>(offsets)};
}

// A result of 1 MiB and more is stored past the caches; that of fewer bags, and of a width without whole lines, is not.
TEST(TableBatchedEmbedding, HasTheSameBitsInLargeResults) {
  const int64_t bags = 3000, widths[] = {64, 32, 16};
  std::vector<Tensor> tables;
  for (const int64_t width : widths) tables.push_back(facets::sample_tensor(static_cast<uint64_t>(width), {50, width}));
  const TableBatch batch = drawn(3, 3, bags, 4, 50, DType::i64);
  const Tensor all = table_batched_embedding_bags(tables, batch).values;
  ASSERT_GT(all.nbytes(), 1 << 20);
  int64_t column = 0;
  for (int64_t t = 0; t < 3; ++t) {
    const int64_t first = batch.offsets.data<int64_t>()[t * bags], last = batch.offsets.data<int64_t>()[(t + 1) * bags];
    const Tensor one = embedding_bag(tables[static_cast<size_t>(t)], narrow(batch.indices, 0, first, last - first),
                                     sub(narrow(batch.offsets, 0, t * bags, bags), first), {.mode = BagMode::sum});
    expect_same_bits(clone(narrow(all, 1, column, widths[t])), one, fmt::format("feature {}", t));
    column += widths[t];
  }
}

TEST(TableBatchedEmbedding, HasTheBitsOfAnEmbeddingBagOfEachFeatureOnAnyNumberOfThreads) {
  RankContext& context = RankContext::current();
  const int64_t bags = 70, widths[] = {1, 16, 33, 64, 130};
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16}) {
    for (const DType index : {DType::i64, DType::i32}) {
      std::vector<Tensor> tables;
      for (const int64_t width : widths)
        tables.push_back(facets::sample_tensor(static_cast<uint64_t>(width), {50, width}, dtype));
      TableBatch batch = drawn(3, 5, bags, 9, 50, index);
      const Tensor weights = facets::sample_tensor(5, batch.indices.extents());
      for (const bool weighted : {false, true}) {
        for (const TablePooling pooling : {TablePooling::sum, TablePooling::mean}) {
          if (weighted && pooling == TablePooling::mean) continue;  // an EmbeddingBag has none
          batch.per_sample_weights = weighted ? weights : Tensor{};
          std::vector<Tensor> results;
          for (const int threads : {1, 2, 4}) {
            context.set_threads(threads);
            results.push_back(table_batched_embedding_bags(tables, batch, {.pooling = pooling}).values);
          }
          context.set_threads(0);
          expect_same_bits(results[1], results[0]);
          expect_same_bits(results[2], results[0]);
          int64_t column = 0;
          for (int64_t t = 0; t < 5; ++t) {
            const int64_t first = batch.offsets.data<int64_t>()[t * bags],
                          last = batch.offsets.data<int64_t>()[(t + 1) * bags];
            const Tensor offsets = sub(narrow(batch.offsets, 0, t * bags, bags), first);
            BagOptions options{.mode = pooling == TablePooling::sum ? BagMode::sum : BagMode::mean};
            if (weighted) options.per_sample_weights = narrow(weights, 0, first, last - first);
            const Tensor one = embedding_bag(tables[static_cast<size_t>(t)],
                                             narrow(batch.indices, 0, first, last - first), offsets, options);
            expect_same_bits(clone(narrow(results[0], 1, column, widths[t])), one, fmt::format("feature {}", t));
            column += widths[t];
          }
        }
      }
    }
  }
}

TEST(TableBatchedEmbedding, TakesTablesOfSeveralDtypesAndResultsOfAnother) {
  const Tensor a = facets::sample_tensor(1, {9, 16}, DType::bf16), b = facets::sample_tensor(2, {9, 8});
  const TableBatch batch = drawn(7, 2, 5, 4, 9, DType::i64);
  const Tensor wide = table_batched_embedding_bags(std::vector{a, b}, batch).values;
  EXPECT_EQ(wide.dtype(), DType::f32);
  for (const auto& [output, dtype] : {std::pair{TableOutput::bf16, DType::bf16}, {TableOutput::f16, DType::f16}}) {
    const Tensor narrow = table_batched_embedding_bags(std::vector{a, b}, batch, {.output = output}).values;
    expect_same_bits(narrow, cast(wide, dtype));
  }
}

TEST(TableBatchedEmbedding, ReadsViewsInPlaceOrCopies) {
  const Tensor whole = facets::sample_tensor(1, {40, 24}), batch_of = facets::sample_tensor(2, {60}, DType::i64, 0, 20);
  const TableBatch batch{.indices = slice(batch_of, 0, 0, 60, 2), .offsets = Tensor::of<int64_t>({0, 10, 30})};
  const Tensor rows = slice(whole, 0, 0, 40, 2), columns = slice(whole, 1, 0, 24, 3), turned = transpose(whole, 0, 1);
  for (const Tensor& view : {rows, columns, narrow(whole, 1, 5, 9), turned}) {
    const std::vector<Tensor> one = {view}, dense = {clone(view)};
    expect_same_bits(table_batched_embedding_bags(one, batch).values,
                     table_batched_embedding_bags(dense, batch).values);
  }
}

TEST(TableBatchedEmbedding, NumbersRowsBeyond32Bits) {
  const int64_t rows = (int64_t{1} << 31) + 5;
  const Tensor table = expand(Tensor::of<float>({3, 4}, {1, 2}), {rows, 2});
  const TableBatch batch{.indices = Tensor::of<int64_t>({rows - 1, 0, int64_t{1} << 31}),
                         .offsets = Tensor::of<int64_t>({0, 3})};
  EXPECT_EQ(floats(table_batched_embedding_bags(std::vector{table}, batch).values), (std::vector<float>{9, 12}));
  const TableBatch beyond{.indices = Tensor::of<int64_t>({rows}), .offsets = Tensor::of<int64_t>({0, 1})};
  EXPECT_EQ(
      message_of([&] { table_batched_embedding_bags(std::vector{table}, beyond); }),
      "table_batched_embedding_bags: 1 of the indices is out of range; the first is 2147483653 of feature 0, bag 0 "
      "(position 0), whose table has 2147483653 rows; legal: 0 to 2147483652");
}

TEST(TableBatchedEmbedding, TellsOfIndicesOutOfRangeAndLeavesThemAsTheyAre) {
  const int64_t lowest = std::numeric_limits<int64_t>::min(), highest = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> given = {0, 3, 1, 2, -1, lowest, highest};
  TableBatch batch{.indices = Tensor::of<int64_t>(given),
                   .offsets = Tensor::of<int64_t>({0, 2, 2, 3, 5, 5, 7}),
                   .features = {0, 1, 0}};
  EXPECT_EQ(message_of([&] { table_batched_embedding_bags(two_tables(), batch); }),
            "table_batched_embedding_bags: 5 of the indices are out of range; the first is 3 of feature 0, bag 0 "
            "(position 1), whose table has 3 rows; legal: 0 to 2");
  for (const BoundsCheck bounds : {BoundsCheck::warning, BoundsCheck::ignore}) {
    ::testing::internal::CaptureStderr();
    const TableBatchResult r =
        table_batched_embedding_bags(two_tables(), batch, {.pooling = TablePooling::mean, .bounds = bounds});
    EXPECT_EQ(::testing::internal::GetCapturedStderr(),
              bounds == BoundsCheck::ignore
                  ? ""
                  : "tutti: table_batched_embedding_bags: 5 of the indices are out of range; the first is 3 of feature "
                    "0, bag 0 (position 1), whose table has 3 rows\n");
    // Bad entries add nothing, but count in the length of a mean.
    EXPECT_EQ(floats(r.values), (std::vector<float>{0.5f, 5, 200, 0, 0, 0, 0, 0, 0, 0}));
    const IndexReport report = IndexReport::of(r.report);
    EXPECT_EQ(report.count, 5);
    EXPECT_EQ((std::vector{report.feature, report.bag, report.position, report.value, report.rows}),
              (std::vector<int64_t>{0, 0, 1, 3, 3}));
    expect_same_bits(batch.indices, Tensor::of<int64_t>(given));
  }
  batch.indices = Tensor::of<int64_t>({0, 1, 1, 1, 0, 1, 1});
  EXPECT_EQ(IndexReport::of(table_batched_embedding_bags(two_tables(), batch).report).to_string(),
            "all indices are in range");
  // Behind an empty table, no index is legal.
  EXPECT_EQ(
      message_of([&] {
        table_batched_embedding_bags(std::vector{zeros({0, 2})},
                                     {.indices = zeros({1}, DType::i32), .offsets = Tensor::of<int64_t>({0, 1})});
      }),
      "table_batched_embedding_bags: 1 of the indices is out of range; the first is 0 of feature 0, bag 0 (position "
      "0), whose table has 0 rows; no index is legal where there is nothing");
}

TEST(TableBatchedEmbedding, NamesOffsetsThatDoNotFit) {
  const auto with = [](std::vector<int64_t> offsets, std::vector<int64_t> bags = {}) {
    return message_of([&] {
      table_batched_embedding_bags(
          two_tables(),
          {.indices = Tensor::of<int64_t>({0, 1, 1}), .offsets = Tensor::of<int64_t>(offsets), .bags = std::move(bags)},
          {.bounds = BoundsCheck::ignore});
    });
  };
  EXPECT_EQ(
      with({0, 1, 2, 3}),
      "table_batched_embedding_bags: 4 offsets for 2 features with B bags each; expected 2 * B + 1, such as 3 or 5");
  EXPECT_EQ(with({}), "table_batched_embedding_bags: there are no offsets; expected the number of all bags + 1");
  EXPECT_EQ(with({0, 2, 1, 3, 3}),
            "table_batched_embedding_bags: bag 1 of feature 0 begins at offset 2 and ends at 1; offsets must not fall");
  EXPECT_EQ(with({0, 2, 3, 4, 3}),
            "table_batched_embedding_bags: bag 1 of feature 1 begins at offset 4 and ends at 3; offsets must not fall");
  EXPECT_EQ(with({-1, 2, 3, 3, 3}), "table_batched_embedding_bags: the first bag begins at offset -1; expected 0");
  EXPECT_EQ(with({0, 2, 2}), "table_batched_embedding_bags: the last offset is 2; expected the number of indices, 3");
  EXPECT_EQ(with({0, 2, 4}), "table_batched_embedding_bags: the last offset is 4; expected the number of indices, 3");
  EXPECT_EQ(with({0, 2, 3}, {1, 2}),
            "table_batched_embedding_bags: 3 offsets for 3 bags; expected the number of all bags + 1");
  EXPECT_EQ(with({0, 2, 3}, {1, 0}),
            "table_batched_embedding_bags: 3 offsets for 1 bags; expected the number of all bags + 1");
  // Before memory for so many results is asked for.
  EXPECT_EQ(with({0, 2, 3}, {1, 1'000'000'000'000}),
            "table_batched_embedding_bags: 3 offsets for 1000000000001 bags; expected the number of all bags + 1");
  EXPECT_EQ(with({0, 3}, {1}), "table_batched_embedding_bags: numbers of bags for 1 features; there are 2 features");
  EXPECT_EQ(with({0, 3}, {1, std::numeric_limits<int64_t>::max()}),
            "table_batched_embedding_bags: feature 1 has 9223372036854775807 bags of 1 columns, more elements than 64 "
            "bits can count");
}

TEST(TableBatchedEmbedding, RefusesWhatItCannotDo) {
  const Tensor one = Tensor::of<int64_t>({0}), offsets = Tensor::of<int64_t>({0, 1, 1});
  const auto with = [&](const TableBatch& batch, const TableBatchOptions& options = {}) {
    return message_of([&] { table_batched_embedding_bags(two_tables(), batch, options); });
  };
  EXPECT_EQ(with({.indices = one, .offsets = offsets, .features = {0, 2}}),
            "table_batched_embedding_bags: feature 1 looks up table 2; there are 2 tables");
  EXPECT_EQ(
      with({.indices = one, .offsets = offsets}, {.pooling = TablePooling::none}),
      "table_batched_embedding_bags: without pooling all features have one width; feature 0 has 2 columns, feature "
      "1 has 1");
  EXPECT_EQ(with({.indices = one, .offsets = offsets, .per_sample_weights = ones({2})}),
            "table_batched_embedding_bags: per_sample_weights are [2] f32 cpu; expected floats of the sizes of the "
            "indices [1] i64 cpu");
  EXPECT_EQ(with({.indices = one}), "table_batched_embedding_bags: the batch has no offsets");
  EXPECT_EQ(with({.indices = ones({1}), .offsets = offsets}),
            "table_batched_embedding_bags: the indices are [1] f32 cpu; expected i64 or i32");
  EXPECT_EQ(message_of([&] { table_batched_embedding_bags({}, {.indices = one, .offsets = offsets}); }),
            "table_batched_embedding_bags: there is no feature; give at least one table");
}

TEST(TableBatchedEmbedding, GivesEmptyBagsTheSumOfNothing) {
  const TableBatch batch{.indices = Tensor::empty({0}, DType::i64), .offsets = Tensor::of<int64_t>({0, 0, 0})};
  for (const TablePooling pooling : {TablePooling::sum, TablePooling::mean})
    for (const float x : floats(table_batched_embedding_bags(two_tables(), batch, {.pooling = pooling}).values))
      EXPECT_TRUE(x == 0 && std::signbit(x));
}

TEST(TableBatchedEmbedding, KeepsNaNAndInfinityInTheirBags) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  const Tensor table = Tensor::of<float>({1, nan, inf, 2}, {2, 2});
  const TableBatch batch{.indices = Tensor::of<int64_t>({0, 1, 1}),
                         .offsets = Tensor::of<int64_t>({0, 1, 1, 3}),
                         .per_sample_weights = Tensor::of<float>({1, nan, 1})};
  const std::vector<float> y = floats(table_batched_embedding_bags(std::vector{table}, batch).values);
  EXPECT_EQ(y[0], 1.0f);
  EXPECT_TRUE(std::isnan(y[1]) && std::isnan(y[4]) && std::isnan(y[5]));
  EXPECT_EQ(y[2], 0.0f);
}

}  // namespace
}  // namespace tutti
