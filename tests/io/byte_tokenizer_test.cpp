#include "tutti/io/byte_tokenizer.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/io/support/sample_text.h"
#include "tutti/core/error.h"

namespace tutti {
namespace {

TEST(ByteTokenizer, MakesOneTokenPerByte) {
  EXPECT_EQ(ByteTokenizer().encode("a\xff"), (std::vector<int32_t>{97, 255}));
}

TEST(ByteTokenizer, RoundTripsAllBytes) {
  std::mt19937 random(3);
  const ByteTokenizer tokenizer;
  for (int i = 0; i < 50; ++i) {
    const std::string text = testing::random_bytes(random, static_cast<size_t>(i) * 7);
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
}

TEST(ByteTokenizer, EarlierDocumentsAreNotCopiedForEachOne) {
  std::vector<int32_t> ids;
  int copies = 0;
  for (int i = 0; i < 10'000; ++i) {
    const int32_t* before = ids.data();
    ByteTokenizer().encode_into("a document", ids, {});
    copies += ids.data() != before;
  }
  EXPECT_LT(copies, 64);
  EXPECT_EQ(ids.size(), 100'000u);
}

TEST(ByteTokenizer, CountsNoTextForMarkers) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.text_nbytes('a'), 1);
  EXPECT_EQ(tokenizer.text_nbytes(ByteTokenizer::kEos), 0);
  const std::vector<int32_t> ids = {256, 'a', 257};
  EXPECT_EQ(tokenizer.decode(ids), "<|bos|>a<|eos|>");
  EXPECT_EQ(tokenizer.decode(ids, true), "a");
}

TEST(ByteTokenizer, RefusesIdsOutsideTheVocabulary) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), 258);
  EXPECT_THROW(tokenizer.token_bytes(258), UsageError);
  EXPECT_THROW(tokenizer.token_bytes(-1), UsageError);
}

}  // namespace
}  // namespace tutti
