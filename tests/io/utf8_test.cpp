#include "tutti/io/utf8.h"

#include <gtest/gtest.h>

namespace tutti::io {
namespace {

TEST(Utf8, RoundTripsEveryCodePoint) {
  for (uint32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c < 0xE000) continue;
    std::string text;
    utf8_append(c, text);
    ASSERT_EQ(utf8_sequence_nbytes(text), text.size()) << c;
    ASSERT_EQ(utf8_decode(text), c);
  }
}

TEST(Utf8, RefusesOverlongSurrogateAndTooLarge) {
  for (const char* bad : {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xF0\x8F\xBF\xBF",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF", "\xE2\x82", "\xF0\x9F\x98"}) {
    EXPECT_EQ(utf8_sequence_nbytes(bad), 0u) << bad;
  }
}

TEST(Utf8, FindsTheLongestValidPrefix) {
  EXPECT_EQ(utf8_valid_prefix_nbytes(""), 0u);
  EXPECT_EQ(utf8_valid_prefix_nbytes("plain ascii of some length"), 26u);
  EXPECT_EQ(utf8_valid_prefix_nbytes("eight by\u20actes then \xff and more"), 20u);
  EXPECT_EQ(utf8_valid_prefix_nbytes("cut \xe2\x82"), 4u);
}

TEST(Utf8, FindsTheLastCharacter) {
  EXPECT_EQ(utf8_last_sequence("ab"), "b");
  EXPECT_EQ(utf8_last_sequence("a\u20ac"), "\u20ac");
  EXPECT_EQ(utf8_last_sequence("\U0001F600"), "\U0001F600");
  for (const char* none : {"", "a\xff", "a\x80", "\x80\x80\x80\x80\x80", "a\xe2\x82", "\u20ac\x80"})
    EXPECT_EQ(utf8_last_sequence(none), "") << none;
}

}  // namespace
}  // namespace tutti::io
