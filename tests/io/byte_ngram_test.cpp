#include "tutti/io/byte_ngram.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/io/support/sample_text.h"

namespace tutti {
namespace {

TEST(ByteNgram, IsUniformBeforeItHasSeenAnything) { EXPECT_NEAR(ByteNgram().bits("abc"), 4 * std::log2(257.0), 1e-9); }

TEST(ByteNgram, FollowsTheFormula) {
  ByteNgram model;
  model.add("ab");  // counts: (end end a), (end a b), (a b end); singles a, b, end
  const double prior_a = (1 + 1.0 / 257) / 4;
  const double after_end_a = (1 + prior_a) / 2;
  const double first = (1 + after_end_a) / 2;
  const double prior_end = prior_a;
  const double after_a_end = (0 + prior_end) / 2;
  const double second = (0 + after_a_end) / 2;
  EXPECT_NEAR(model.bits("a"), -std::log2(first) - std::log2(second), 1e-12);
}

TEST(ByteNgram, GivesProbabilitiesThatAddUpToOne) {
  ByteNgram model;
  for (const std::string& document : testing::sample_documents(5)) model.add(document);
  for (const auto& [before_last, last] :
       {std::pair<size_t, size_t>{'t', 'h'}, {ByteNgram::kDocumentEnd, 't'}, {0, 255}}) {
    double sum = 0;
    for (size_t next = 0; next < ByteNgram::kSymbols; ++next) sum += model.probability(before_last, last, next);
    EXPECT_NEAR(sum, 1.0, 1e-12);
  }
}

TEST(ByteNgram, NeedsFewBitsForTextLikeItsTraining) {
  ByteNgram model;
  for (const std::string& document : testing::sample_documents(200)) model.add(document);
  double bits = 0, bytes = 0;
  for (const std::string& document : testing::sample_documents(20, 77)) {
    bits += model.bits(document);
    bytes += static_cast<double>(document.size());
  }
  EXPECT_LT(bits / bytes, 2.5);
  EXPECT_GT(bits / bytes, 0.5);
}

}  // namespace
}  // namespace tutti
