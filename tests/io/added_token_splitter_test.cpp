#include "tutti/io/added_token_splitter.h"

#include <gtest/gtest.h>

namespace tutti::io {
namespace {

// Stretches as they stand, tokens as their ids in brackets.
std::string parts_of(const AddedTokenSplitter& splitter, std::string_view text, bool parse_special = true) {
  std::string parts;
  splitter.split(
      text, parse_special, [&](std::string_view stretch) { parts += "'" + std::string(stretch) + "'"; },
      [&](int32_t id) { parts += "[" + std::to_string(id) + "]"; });
  return parts;
}

std::string_view without_stars(std::string_view text, std::string& storage) {
  storage = text;
  std::erase(storage, '*');
  return storage;
}

TEST(AddedTokenSplitter, TakesTheLongestOfTheTokensThatBeginTogether) {
  const AddedTokenSplitter splitter(
      {{.id = 1, .content = "<a"}, {.id = 2, .content = "<a>b"}, {.id = 3, .content = "<"}}, nullptr);
  EXPECT_EQ(parts_of(splitter, "x<a>b<a><"), "'x'[2][1]'>'[3]");
}

TEST(AddedTokenSplitter, LeavesSpecialTokensInTheTextUnlessAsked) {
  const AddedTokenSplitter splitter({{.id = 1, .content = "<s>", .special = true}, {.id = 2, .content = "<t>"}},
                                    nullptr);
  EXPECT_EQ(parts_of(splitter, "a<s><t>", false), "'a<s>'[2]");
  EXPECT_EQ(parts_of(splitter, "a<s><t>", true), "'a'[1][2]");
}

TEST(AddedTokenSplitter, StripsWhiteSpaceOfAnyScript) {
  const AddedTokenSplitter splitter(
      {{.id = 1, .content = "<l>", .lstrip = true}, {.id = 2, .content = "<r>", .rstrip = true}}, nullptr);
  EXPECT_EQ(parts_of(splitter, "a \u3000<l> b <r>\n\u00a0c"), "'a'[1]' b '[2]'c'");
  EXPECT_EQ(parts_of(splitter, "  <l>\xff<r>\xe3\x80"), "[1]'\xff'[2]'\xe3\x80'");
}

TEST(AddedTokenSplitter, FindsSingleWordsBetweenWhatIsNoWord) {
  const AddedTokenSplitter splitter({{.id = 1, .content = "cat", .single_word = true}}, nullptr);
  EXPECT_EQ(parts_of(splitter,
                     "cat concat cats \u00e9cat cat\u0301 cat_ 9cat (cat) \xff"
                     "cat"),
            "[1]' concat cats \u00e9cat cat\u0301 cat_ 9cat ('[1]') \xff'[1]");
}

TEST(AddedTokenSplitter, LooksForNormalizedTokensInNormalizedTextBehindTheOthers) {
  const AddedTokenSplitter splitter({{.id = 1, .content = "a*b", .normalized = true}, {.id = 2, .content = "b*"}},
                                    without_stars);
  EXPECT_EQ(parts_of(splitter, "a**b ab*"), "[1]' a'[2]");
}

}  // namespace
}  // namespace tutti::io
