#include "tutti/io/token_stream.h"

#include <gtest/gtest.h>

#include "tests/io/support/sample_text.h"
#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/bpe_trainer.h"
#include "tutti/io/byte_tokenizer.h"

namespace tutti {
namespace {

using Ids = std::vector<int32_t>;
constexpr int32_t kS = ByteTokenizer::kBos;
constexpr int32_t kE = ByteTokenizer::kEos;

TokenCorpus corpus_of(const std::vector<std::string>& documents) { return tokenize(documents, ByteTokenizer()); }

struct Row {
  Ids inputs, labels, positions;
};

Row row_of(const TokenStream& stream, int64_t row, size_t length) {
  Row out{Ids(length), Ids(length), Ids(length)};
  stream.read_row(row, out.inputs, out.labels, out.positions);
  return out;
}

TEST(TokenStream, CutsFramedDocumentsIntoRows) {
  const TokenStream stream(corpus_of({"abc", "de"}), {0, 1}, {kS, kE}, 3);
  ASSERT_EQ(stream.row_count(), 2);
  const Row first = row_of(stream, 0, 3);
  EXPECT_EQ(first.inputs, (Ids{kS, 'a', 'b'}));
  EXPECT_EQ(first.labels, (Ids{'a', 'b', 'c'}));
  EXPECT_EQ(first.positions, (Ids{0, 1, 2}));
  const Row second = row_of(stream, 1, 3);
  EXPECT_EQ(second.inputs, (Ids{'c', kS, 'd'}));
  EXPECT_EQ(second.labels, (Ids{kE, 'd', 'e'}));
  EXPECT_EQ(second.positions, (Ids{0, 0, 1}));
}

TEST(TokenStream, DropsTheRemainder) {
  const TokenStream stream(corpus_of({"abc", "de"}), {0, 1}, {kS, kE}, 4);
  EXPECT_EQ(stream.pair_count(), 7);
  EXPECT_EQ(stream.row_count(), 1);
  EXPECT_THROW(row_of(stream, 1, 4), UsageError);
  EXPECT_THROW(row_of(stream, -1, 4), UsageError);
}

TEST(TokenStream, KeepsTheGivenOrder) {
  const TokenStream stream(corpus_of({"a", "b", "c"}), {2, 0}, {kS, kE}, 4);
  EXPECT_EQ(row_of(stream, 0, 4).inputs, (Ids{kS, 'c', kS, 'a'}));
}

TEST(TokenStream, PredictsEveryTokenOnceAndNeverAcrossDocuments) {
  const std::vector<std::string> documents = testing::sample_documents(30);
  std::vector<int64_t> order;
  for (int64_t i = 0; i < 30; ++i) order.push_back(i);
  for (const int64_t length : {1, 7, 64, 1000}) {
    const TokenStream stream(corpus_of(documents), order, {kS, kE}, length);
    std::string predicted;
    std::string expected;
    for (const std::string& document : documents) expected += document + '\x01';
    for (int64_t r = 0; r < stream.row_count(); ++r) {
      const Row row = row_of(stream, r, static_cast<size_t>(length));
      EXPECT_EQ(row.positions[0], 0);
      for (size_t t = 0; t < row.inputs.size(); ++t) {
        EXPECT_NE(row.inputs[t], kE);
        EXPECT_NE(row.labels[t], kS);
        if (t > 0) {
          EXPECT_EQ(row.positions[t], row.inputs[t] == kS ? 0 : row.positions[t - 1] + 1);
          EXPECT_TRUE(row.inputs[t] == kS || row.inputs[t] == row.labels[t - 1]);
        }
        predicted += row.labels[t] == kE ? '\x01' : static_cast<char>(row.labels[t]);
      }
    }
    EXPECT_EQ(predicted, expected.substr(0, predicted.size()));
    EXPECT_LT(expected.size() - predicted.size(), static_cast<size_t>(length));
  }
}

TEST(TokenStream, CountsTheDocumentsThatRowsShow) {
  const TokenStream stream(corpus_of({"abc", "de", "f"}), {0, 1, 2}, {kS, kE}, 4);
  EXPECT_EQ(stream.documents_in_rows(0), 0);
  EXPECT_EQ(stream.documents_in_rows(1), 1);
  EXPECT_EQ(stream.documents_in_rows(2), 3);
  EXPECT_EQ(stream.documents_in_rows(99), 3);
}

TEST(DocumentFrame, BeginsWithEosWhereNoBosExists) {
  EXPECT_EQ(document_frame(ByteTokenizer()).start, kS);
  const BpeTokenizer bpe(train_bpe(testing::sample_documents(5), {.vocab_size = 260}));
  EXPECT_EQ(document_frame(bpe).start, 259);
  EXPECT_EQ(document_frame(bpe).end, 259);
}

TEST(DocumentFrame, AsksForAnEos) {
  BpeModel model = train_bpe(testing::sample_documents(5), {.vocab_size = 260});
  model.eos_id.reset();
  EXPECT_THROW(document_frame(BpeTokenizer(model)), UsageError);
}

}  // namespace
}  // namespace tutti
