#include "tutti/io/bert_normalizer.h"

#include <gtest/gtest.h>

namespace tutti::io {
namespace {

using Words = std::vector<std::string_view>;

constexpr BertNormalization kNothing{
    .clean_text = false, .handle_chinese_chars = false, .strip_accents = false, .lowercase = false};

TEST(BertNormalizer, LowersCaseAndStripsAccents) {
  EXPECT_EQ(bert_normalized("H\u00e9llo \u00c5NGSTR\u00d6M \u0130I \u0391\u03a3", {}),
            "hello angstrom ii \u03b1\u03c3");
  EXPECT_EQ(bert_normalized("\u00c9\u0130", {.strip_accents = false}), "\u00e9i\u0307");
  EXPECT_EQ(bert_normalized("\u00c9\u0301", {.lowercase = false}), "\u00c9\u0301") << "accents stay as case does";
  EXPECT_EQ(bert_normalized("\u00c9", {.strip_accents = true, .lowercase = false}), "E");
}

TEST(BertNormalizer, CleansTextAndPutsSpacesAroundIdeographs) {
  EXPECT_EQ(bert_normalized(std::string_view("a\0b\tc\x7f\u00a0\u200b\ufffd\u0085", 16), {}), "ab c ");
  EXPECT_EQ(bert_normalized("x\u4e2d\u6587", {}), "x \u4e2d  \u6587 ");
  EXPECT_EQ(bert_normalized("\uac01", {}), "\u1100\u1161\u11a8");
}

TEST(BertNormalizer, TakesInvalidBytesForReplacementCharacters) {
  EXPECT_EQ(bert_normalized("a\xff\xe2\x82z", {}), "az");
  EXPECT_EQ(bert_normalized("a\xff", kNothing), "a\ufffd");
  EXPECT_EQ(bert_normalized("\u00c9 A\t", kNothing), "\u00c9 A\t");
}

TEST(BertWords, StandBetweenWhiteSpaceAndPunctuation) {
  EXPECT_EQ(bert_words(" don't\u3000stop...\u00bfno? "),
            (Words{"don", "'", "t", "stop", ".", ".", ".", "\u00bf", "no", "?"}));
  EXPECT_EQ(bert_words("a$b+c"), (Words{"a", "$", "b", "+", "c"}));
  EXPECT_EQ(bert_words("\u20ac5"), Words{"\u20ac5"}) << "a sign outside ASCII is no punctuation";
  EXPECT_TRUE(bert_words(" \n").empty());
}

}  // namespace
}  // namespace tutti::io
