#include "tutti/generate/serve/text_stream.h"

#include <gtest/gtest.h>

#include "tests/support/message_of.h"
#include "tutti/io/byte_tokenizer.h"

namespace tutti::generate::serve {
namespace {

using Pieces = std::vector<std::string>;

// The pieces that come of the bytes of `text` as tokens, and what is left at the end.
Pieces pieces_of(std::string_view text, const Pieces& stops, bool* stopped = nullptr) {
  const ByteTokenizer tokenizer;
  TextStream stream(tokenizer, stops);
  Pieces pieces;
  for (const int32_t id : tokenizer.encode(text)) pieces.push_back(stream.feed(id));
  pieces.push_back(stream.finish());
  if (stopped != nullptr) *stopped = stream.is_stopped();
  return pieces;
}

std::string joined(const Pieces& pieces) {
  std::string all;
  for (const std::string& piece : pieces) all += piece;
  return all;
}

TEST(TextStream, GivesEachCharacterWhenItIsWhole) {
  EXPECT_EQ(pieces_of("aé", {}), (Pieces{"a", "", "é", ""}));
  EXPECT_EQ(pieces_of("🙂b", {}), (Pieces{"", "", "", "🙂", "b", ""}));
}

TEST(TextStream, ReplacesBytesThatAreNoText) {
  EXPECT_EQ(joined(pieces_of("a\xff"
                             "b",
                             {})),
            "a\uFFFDb");
  EXPECT_EQ(pieces_of("a\xc3", {}), (Pieces{"a", "", "\uFFFD"}));
  EXPECT_EQ(joined(pieces_of("\xc3(\x80", {})), "\uFFFD(\uFFFD");
  EXPECT_EQ(joined(pieces_of("\xf5\xf0\x9f\x99\x82", {})), "\uFFFD🙂");
}

TEST(TextStream, HoldsBackWhatMayBeAStop) {
  EXPECT_EQ(pieces_of("abXaSTOPz", {"STOP"}), (Pieces{"a", "b", "X", "a", "", "", "", "", "", ""}));
  EXPECT_EQ(pieces_of("SSTOx", {"STOP"}), (Pieces{"", "S", "", "", "STOx", ""}));
  EXPECT_EQ(pieces_of("aST", {"STOP"}), (Pieces{"a", "", "", "ST"}));
  bool stopped = false;
  EXPECT_EQ(joined(pieces_of("one two", {" ", "two"}, &stopped)), "one");
  EXPECT_TRUE(stopped);
  EXPECT_EQ(joined(pieces_of("aabaabaac", {"aabaac"}, &stopped)), "aab");
  EXPECT_TRUE(stopped) << "the end of a failed beginning may begin another";
}

TEST(TextStream, FindsStopsWithinATokenAndTheFirstOfSeveral) {
  const ByteTokenizer tokenizer;
  TextStream stream(tokenizer, {"b", "a"});
  EXPECT_EQ(stream.feed('x'), "x");
  EXPECT_EQ(stream.stop(), "");
  EXPECT_EQ(stream.feed('a'), "");
  EXPECT_EQ(stream.stop(), "a");
  EXPECT_EQ(stream.feed('y'), "");
  EXPECT_EQ(stream.finish(), "");
}

TEST(TextStream, StopsAtBytesOfManyCharacters) {
  bool stopped = false;
  EXPECT_EQ(joined(pieces_of("é🙂ü", {"🙂"}, &stopped)), "é");
  EXPECT_TRUE(stopped);
  EXPECT_EQ(joined(pieces_of("é🙃ü", {"🙂"}, &stopped)), "é🙃ü");
  EXPECT_FALSE(stopped);
}

TEST(TextStream, GivesTheSameTextHoweverItIsCut) {
  const std::string text = "ab\xc3\xa9ST\xf0\x9f\x99\x82SSTO\xff no STO STOP after";
  for (const Pieces& stops : {Pieces{}, Pieces{"STOP"}, Pieces{"no"}, Pieces{"\xff", "zzz"}, Pieces{"after!"}}) {
    size_t end = std::string::npos;
    for (const std::string& stop : stops) end = std::min(end, text.find(stop));
    EXPECT_EQ(joined(pieces_of(text, stops)), valid_utf8(text.substr(0, end)));
  }
}

TEST(TextStream, LeavesSpecialTokensOut) {
  const ByteTokenizer tokenizer;
  TextStream stream(tokenizer, {});
  EXPECT_EQ(stream.feed('a') + stream.feed(*tokenizer.eos_id()) + stream.feed('b'), "ab");
  EXPECT_EQ(message_of([&] { TextStream(tokenizer, {""}); }), "a stop string is empty; leave it out");
}

}  // namespace
}  // namespace tutti::generate::serve
