#include "tutti/io/token_dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/io/support/sample_text.h"
#include "tutti/core/error.h"
#include "tutti/io/byte_tokenizer.h"

namespace tutti {
namespace {

const TokenCorpus& corpus() {
  static const TokenCorpus instance = tokenize(testing::sample_documents(100), ByteTokenizer());
  return instance;
}

TokenDataset dataset_of(const TokenDatasetOptions& options) { return {corpus(), ByteTokenizer(), options}; }

std::vector<int64_t> copy_of(std::span<const int64_t> values) { return {values.begin(), values.end()}; }

std::vector<int32_t> inputs_of_epoch(TokenDataset& dataset, int64_t epoch) {
  return dataset.training_rows(epoch * dataset.rows_per_epoch(), dataset.rows_per_epoch()).inputs;
}

TEST(TokenDataset, HoldsOutTheAskedShareOfDocuments) {
  const TokenDataset dataset = dataset_of({.sequence_length = 16, .validation_fraction = 0.1});
  EXPECT_EQ(dataset.validation_documents().size(), 10u);
  EXPECT_EQ(dataset.training_documents().size(), 90u);
  std::set<int64_t> all(dataset.validation_documents().begin(), dataset.validation_documents().end());
  all.insert(dataset.training_documents().begin(), dataset.training_documents().end());
  EXPECT_EQ(all.size(), 100u);
}

TEST(TokenDataset, HoldsOutTheSameDocumentsForTheSameSeedOnly) {
  const TokenDatasetOptions options{.sequence_length = 16, .validation_fraction = 0.2, .seed = 5};
  const auto held_out = copy_of(dataset_of(options).validation_documents());
  EXPECT_EQ(copy_of(dataset_of(options).validation_documents()), held_out);
  EXPECT_NE(copy_of(dataset_of({.sequence_length = 16, .validation_fraction = 0.2, .seed = 6}).validation_documents()),
            held_out);
}

TEST(TokenDataset, KeepsAtLeastOneDocumentOnEachSide) {
  EXPECT_EQ(dataset_of({.sequence_length = 4, .validation_fraction = 1e-9}).validation_documents().size(), 1u);
  EXPECT_EQ(dataset_of({.sequence_length = 4, .validation_fraction = 0.999}).training_documents().size(), 1u);
  EXPECT_EQ(dataset_of({.sequence_length = 4, .validation_fraction = 0}).validation_row_count(), 0);
}

TEST(TokenDataset, ShowsEveryTrainingTokenOncePerEpoch) {
  TokenDataset dataset = dataset_of({.sequence_length = 1, .validation_fraction = 0.1});
  std::vector<int32_t> expected;
  for (const int64_t document : dataset.training_documents()) {
    const auto tokens = corpus().document(document);
    expected.push_back(ByteTokenizer::kBos);
    expected.insert(expected.end(), tokens.begin(), tokens.end());
  }
  std::sort(expected.begin(), expected.end());
  for (int64_t epoch = 0; epoch < 2; ++epoch) {
    std::vector<int32_t> inputs = inputs_of_epoch(dataset, epoch);
    std::sort(inputs.begin(), inputs.end());
    EXPECT_EQ(inputs, expected);
  }
}

TEST(TokenDataset, OrdersEachEpochAnew) {
  TokenDataset dataset = dataset_of({.sequence_length = 16});
  EXPECT_NE(inputs_of_epoch(dataset, 0), inputs_of_epoch(dataset, 1));
}

TEST(TokenDataset, GivesARowByItsIndexAlone) {
  const TokenDatasetOptions options{.sequence_length = 16, .seed = 9};
  TokenDataset whole = dataset_of(options);
  const int64_t count = 2 * whole.rows_per_epoch() + 5;
  const TokenRows rows = whole.training_rows(0, count);
  TokenDataset single = dataset_of(options);
  for (int64_t i = count - 1; i >= 0; i -= 7) {
    const TokenRows row = single.training_rows(i, 1);
    const auto begin = rows.inputs.begin() + i * 16;
    ASSERT_TRUE(std::equal(row.inputs.begin(), row.inputs.end(), begin)) << i;
    ASSERT_TRUE(std::equal(row.labels.begin(), row.labels.end(), rows.labels.begin() + i * 16)) << i;
    ASSERT_TRUE(std::equal(row.positions.begin(), row.positions.end(), rows.positions.begin() + i * 16)) << i;
  }
}

// The order is part of every recorded loss: a change here changes all goldens and breaks resuming older runs.
TEST(TokenDataset, KeepsTheOrderOfEarlierReleases) {
  const std::vector<std::string> letters = {"a", "b", "c", "d", "e", "f", "g", "h"};
  TokenDataset dataset(tokenize(letters, ByteTokenizer()), ByteTokenizer(),
                       {.sequence_length = 2, .validation_fraction = 0.25, .seed = 1});
  const auto letters_of = [](const TokenRows& rows) {
    std::string text;
    for (size_t i = 1; i < rows.inputs.size(); i += 2) text += static_cast<char>(rows.inputs[i]);
    return text;
  };
  EXPECT_EQ(letters_of(dataset.training_rows(0, 6)), "hdgacf");
  EXPECT_EQ(letters_of(dataset.training_rows(6, 6)), "ahcfgd");
  EXPECT_EQ(letters_of(dataset.validation_rows(0, 2)), "eb");
}

TEST(TokenDataset, TranslatesBetweenCursorAndGlobalRow) {
  const TokenDataset dataset = dataset_of({.sequence_length = 16});
  const int64_t rows = dataset.rows_per_epoch();
  EXPECT_EQ(dataset.cursor_at(0), (DataCursor{0, 0}));
  EXPECT_EQ(dataset.cursor_at(2 * rows + 3), (DataCursor{2, 3}));
  EXPECT_EQ(dataset.global_row_at({2, 3}), 2 * rows + 3);
  EXPECT_THROW(dataset.global_row_at({0, rows}), UsageError);
  EXPECT_THROW(dataset.cursor_at(-1), UsageError);
}

TEST(TokenDataset, NamesTheHeldOutDocumentsThatRowsShow) {
  const TokenDataset dataset = dataset_of({.sequence_length = 16, .validation_fraction = 0.2});
  EXPECT_EQ(dataset.validation_documents_in(dataset.validation_row_count() + 1).size(), 20u);
  EXPECT_EQ(dataset.validation_documents_in(1).size(), 1u);
  const TokenRows rows = dataset.validation_rows(0, 1);
  EXPECT_EQ(rows.inputs[1], corpus().document(dataset.validation_documents()[0])[0]);
}

TEST(TokenDataset, RefusesTextShorterThanARow) {
  EXPECT_THROW(dataset_of({.sequence_length = 1000000, .validation_fraction = 0}), UsageError);
  try {
    dataset_of({.sequence_length = 2000, .validation_fraction = 0.01});
    FAIL() << "a held-out split without a row was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("raise validation_fraction"), std::string::npos) << error.what();
  }
}

TEST(TokenDataset, RefusesImpossibleOptions) {
  EXPECT_THROW(dataset_of({.sequence_length = 0}), UsageError);
  EXPECT_THROW(dataset_of({.validation_fraction = 1.0}), UsageError);
  EXPECT_THROW(dataset_of({.validation_fraction = -0.1}), UsageError);
  const std::vector<std::string> one = {"one document"};
  EXPECT_THROW(TokenDataset(tokenize(one, ByteTokenizer()), ByteTokenizer(), {.sequence_length = 4}), UsageError);
}

}  // namespace
}  // namespace tutti
