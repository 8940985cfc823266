#include "tutti/io/regex_split.h"

#include <gtest/gtest.h>

#include "tests/io/support/sample_text.h"
#include "tutti/core/error.h"
#include "tutti/io/bpe_model.h"

namespace tutti::io {
namespace {

using Pieces = std::vector<std::string>;

Pieces pieces_of(const RegexSplitter& splitter, std::string_view text) {
  std::vector<size_t> ends;
  splitter.split(text, 0, ends);
  Pieces pieces;
  size_t begin = 0;
  for (const size_t end : ends) {
    pieces.emplace_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

TEST(RegexSplit, TellsWhetherAPatternMatches) {
  const RegexSplitter splitter("^\\p{L}");
  EXPECT_TRUE(splitter.matches("\u00e9"));
  EXPECT_FALSE(splitter.matches("1\u00e9"));
  EXPECT_FALSE(splitter.matches(""));
}

TEST(RegexSplit, CutsEnglishAsQwenDoes) {
  const RegexSplitter splitter(kQwenSplitPattern);
  EXPECT_EQ(pieces_of(splitter, "It's 12  larks,\n\n then"),
            (Pieces{"It", "'s", " ", "1", "2", " ", " larks", ",\n\n", " then"}));
}

TEST(RegexSplit, KnowsUnicodeLetters) {
  EXPECT_EQ(pieces_of(RegexSplitter(kQwenSplitPattern), "\u00fcber \u4e2d\u6587"),
            (Pieces{"\u00fcber", " \u4e2d\u6587"}));
}

TEST(RegexSplit, KeepsTheStretchesBetweenMatches) {
  EXPECT_EQ(pieces_of(RegexSplitter("[0-9]+"), "ab12cd3"), (Pieces{"ab", "12", "cd", "3"}));
  EXPECT_EQ(pieces_of(RegexSplitter("x*"), "abc"), Pieces{"abc"});
}

TEST(RegexSplit, MakesPiecesOfInvalidBytes) {
  EXPECT_EQ(pieces_of(RegexSplitter(kQwenSplitPattern),
                      "ab\xff\xfe"
                      "cd\xe2\x82"),
            (Pieces{"ab", "\xff\xfe", "cd", "\xe2\x82"}));
}

TEST(RegexSplit, LosesNoByte) {
  const RegexSplitter splitter(kQwenSplitPattern);
  std::mt19937 random(5);
  for (int i = 0; i < 300; ++i) {
    const std::string text = testing::random_bytes(random, random() % 200);
    std::string joined;
    for (const std::string& piece : pieces_of(splitter, text)) {
      EXPECT_FALSE(piece.empty());
      joined += piece;
    }
    EXPECT_EQ(joined, text);
  }
}

TEST(RegexSplit, TakesMegabytesOfOneCharacter) {
  const RegexSplitter splitter(kQwenSplitPattern);
  EXPECT_EQ(pieces_of(splitter, std::string(1 << 20, 'a')).size(), 1u);
  EXPECT_EQ(pieces_of(splitter, std::string(1 << 20, ' ')).size(), 1u);
}

TEST(RegexSplit, NamesThePlaceOfAMistakeInThePattern) {
  try {
    RegexSplitter splitter("abc(");
    FAIL() << "a broken pattern compiled";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("'abc(' does not compile"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("at byte 4"), std::string::npos) << error.what();
  }
}

TEST(RegexSplit, StopsAPatternThatNeverEnds) {
  EXPECT_THROW(pieces_of(RegexSplitter("(a+)+(?=b)"), std::string(40, 'a')), UsageError);
}

}  // namespace
}  // namespace tutti::io
