// Log probabilities of texts: against the losses of one forward, in any window, one call after the other.
#include "tutti/train/score_text.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/message_of.h"
#include "tests/train/support/tiny_model.h"
#include "tutti/core/error.h"
#include "tutti/core/exact_sum.h"

namespace tutti::train {
namespace {

std::vector<int32_t> some_tokens(int count) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < count; ++i) tokens.push_back((i * 37 + 11) % 256);
  return tokens;
}

TEST(TokenLogProbabilities, OfAWindowAreThoseOfItsTokensAlone) {
  TinyModel tiny;
  const std::vector<int32_t> tokens = some_tokens(14);
  for (const int64_t window : {1, 2, 5, 12, 13, 14, 60}) {
    const std::vector<float> got = token_log_probabilities(tiny.model, tokens, window);
    ASSERT_EQ(got.size(), 13u);
    for (size_t begin = 0; begin < got.size(); begin += static_cast<size_t>(window)) {
      const size_t end = std::min(begin + static_cast<size_t>(window), got.size());
      const std::vector<float> alone =
          token_log_probabilities(tiny.model, std::span(tokens).subspan(begin, end - begin + 1), 60);
      EXPECT_EQ(std::vector<float>(got.begin() + static_cast<std::ptrdiff_t>(begin),
                                   got.begin() + static_cast<std::ptrdiff_t>(end)),
                alone)
          << window << " " << begin;
    }
  }
}

// The probabilities of all next tokens add up to 1.
TEST(TokenLogProbabilities, AreOfADistribution) {
  TinyModel tiny;
  double sum = 0;
  for (int32_t next = 0; next < 258; ++next) {
    std::vector<int32_t> tokens = some_tokens(6);
    tokens.push_back(next);
    sum += std::exp(static_cast<double>(token_log_probabilities(tiny.model, tokens, 60).back()));
  }
  EXPECT_NEAR(sum, 1, 1e-5);
}

TEST(TokenLogProbabilities, OfFewerThanTwoTokensAreNoneAndErrorsChangeNothing) {
  TinyModel tiny;
  const std::vector<int32_t> tokens = some_tokens(5);
  const std::vector<float> before = token_log_probabilities(tiny.model, tokens, 3);
  EXPECT_TRUE(token_log_probabilities(tiny.model, {}, 3).empty());
  EXPECT_TRUE(token_log_probabilities(tiny.model, std::span(tokens).first(1), 3).empty());
  EXPECT_NE(message_of([&] { token_log_probabilities(tiny.model, tokens, 0); }).find("windows of 0 tokens"),
            std::string::npos);
  for (const int32_t wrong : {-1, 258}) {
    std::vector<int32_t> bad = tokens;
    bad[2] = wrong;
    EXPECT_NE(message_of([&] {
                token_log_probabilities(tiny.model, bad, 3);
              }).find(fmt::format("token {} is none of the model's 258", wrong)),
              std::string::npos);
  }
  EXPECT_EQ(token_log_probabilities(tiny.model, tokens, 3), before);
  EXPECT_TRUE(tiny.model.is_training()) << "the mode is what it was";
}

TEST(DocumentScores, AddUpWhateverTheirOrder) {
  TinyModel tiny;
  const ByteTokenizer tokenizer;
  const std::vector<std::string> documents{"one text", "", "a", "and another"},
      reversed(documents.rbegin(), documents.rend());
  const TextScore all = score_documents(tiny.model, tokenizer, documents, 4),
                  back = score_documents(tiny.model, tokenizer, reversed, 4);
  EXPECT_EQ(all.log_probability, back.log_probability);
  EXPECT_EQ(all.tokens, 7 + 0 + 0 + 10);
  EXPECT_EQ(all.nbytes, all.tokens);
  double sum = 0;
  for (const std::string& document : documents)
    sum += score_documents(tiny.model, tokenizer, std::span(&document, 1), 4).log_probability;
  EXPECT_NEAR(all.log_probability, sum, 1e-9);
  EXPECT_NEAR(all.perplexity(), std::exp(-sum / 17), 1e-9);
  EXPECT_NEAR(all.bits_per_byte(), -sum / std::log(2.0) / 17, 1e-9);
  EXPECT_TRUE(std::isnan(score_documents(tiny.model, tokenizer, {}, 4).perplexity()));
}

// Documents share batches, in which windows are cut anywhere.
TEST(DocumentScores, HaveTheBitsOfForwardsOfTheirWindows) {
  TinyModel tiny;
  const ByteTokenizer tokenizer;
  std::vector<std::string> documents;
  for (size_t length : {50, 3, 0, 171, 1, 20, 90, 2})
    documents.emplace_back(length, static_cast<char>('a' + length % 26));
  for (int i = 0; i < 100; ++i) documents.emplace_back(static_cast<size_t>(i % 9), 'x');
  for (const int64_t window : {1, 7, 16, 60}) {
    ExactSum sum(ExactTerm::value);
    int64_t count = 0;
    for (const std::string& document : documents) {
      const std::vector<float> logs =
          token_log_probabilities(tiny.model, tokenizer.encode(document, {.add_special_tokens = true}), window);
      sum.add(logs);
      count += std::ssize(logs);
    }
    const TextScore score = score_documents(tiny.model, tokenizer, documents, window);
    EXPECT_EQ(score.log_probability, sum.value()) << window;
    EXPECT_EQ(score.tokens, count);
  }
  EXPECT_TRUE(tiny.model.is_training()) << "the mode is what it was";
  EXPECT_THROW(score_documents(tiny.model, tokenizer, documents, 0), UsageError);
}

// With a cache of codes every window is read from it, also one that would be a forward of its own, in which numbers
// never were codes.
TEST(DocumentScores, OverACacheOfCodesDoNotDependOnBatches) {
  TinyModel tiny;
  const ByteTokenizer tokenizer;
  std::vector<std::string> documents, reversed;
  for (size_t length : {55, 3, 41, 0, 20}) documents.emplace_back(length, static_cast<char>('a' + length % 26));
  reversed.assign(documents.rbegin(), documents.rend());
  const double numbers = score_documents(tiny.model, tokenizer, documents, 60).log_probability;
  for (const DType code : {DType::i8, DType::f8e4m3fn}) {
    const auto score = [&](std::span<const std::string> texts, int64_t window) {
      return score_documents(tiny.model, tokenizer, texts, window, {}, code).log_probability;
    };
    const double codes = score(documents, 60);
    EXPECT_EQ(score(reversed, 60), codes);
    EXPECT_EQ(score(documents, 1000), codes);
    EXPECT_NE(codes, numbers);
    EXPECT_NEAR(codes / numbers, 1, 0.01);
  }
}

}  // namespace
}  // namespace tutti::train
