#include "tutti/io/word_piece_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tutti/core/error.h"

namespace tutti {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

Json small_words() {
  const auto special = [](int32_t id, const char* content) {
    return Json{{"id", id}, {"content", content}, {"special", true}};
  };
  return {{"added_tokens", {special(0, "[UNK]"), special(1, "[CLS]"), special(2, "[SEP]")}},
          {"normalizer", {{"type", "BertNormalizer"}, {"strip_accents", nullptr}}},
          {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
          {"post_processor", {{"type", "BertProcessing"}, {"cls", {"[CLS]", 1}}, {"sep", {"[SEP]", 2}}}},
          {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
          {"truncation", {{"max_length", 2}}},
          {"model",
           {{"type", "WordPiece"},
            {"unk_token", "[UNK]"},
            {"max_input_chars_per_word", 5},
            {"vocab",
             {{"[UNK]", 0},
              {"[CLS]", 1},
              {"[SEP]", 2},
              {"a", 3},
              {"ab", 4},
              {"##c", 5},
              {"##\u00fc", 6},
              {".", 7},
              {"##cab", 8}}}}}};
}

WordPieceTokenizer parsed(const Json& json) {
  return WordPieceTokenizer(io::parse_word_piece_json(json.dump(), "", "words.json"));
}

TEST(WordPiece, TakesTheLongestTokenThatFits) {
  const WordPieceTokenizer tokenizer = parsed(small_words());
  EXPECT_EQ(tokenizer.encode("abc Acab."), (Ids{4, 5, 3, 8, 7}));
  EXPECT_EQ(tokenizer.encode("abca ca"), (Ids{0, 0})) << "words that tokens do not make up";
}

TEST(WordPiece, DoesNotPutLongWordsTogether) {
  EXPECT_EQ(parsed(small_words()).encode("acccc accccc"), (Ids{3, 5, 5, 5, 5, 0}));
}

TEST(WordPiece, MakesNoSpecialTokensUnlessAsked) {
  const WordPieceTokenizer tokenizer = parsed(small_words());
  EXPECT_EQ(tokenizer.encode("a[SEP]a"), (Ids{3, 0, 0, 0, 3}));
  EXPECT_EQ(tokenizer.encode("a[SEP]a", {.parse_special = true}), (Ids{3, 2, 3}));
  EXPECT_EQ(tokenizer.encode("a", {.add_special_tokens = true}), (Ids{1, 3, 2}));
  EXPECT_EQ(tokenizer.encode("a a a a"), (Ids{3, 3, 3, 3})) << "the truncation of the file is not applied";
}

TEST(WordPiece, DecodesToWords) {
  const WordPieceTokenizer tokenizer = parsed(small_words());
  EXPECT_EQ(tokenizer.decode(Ids{1, 4, 5, 3, 7, 2}), "[CLS] abc a. [SEP]");
  EXPECT_EQ(tokenizer.decode(Ids{1, 4, 5, 3, 7, 2}, true), "abc a.");
  EXPECT_EQ(tokenizer.decode(Ids{5, 3}), "##c a");
  EXPECT_THROW(tokenizer.decode(Ids{9}), UsageError);
  EXPECT_EQ(tokenizer.token_bytes(5), "c");
  EXPECT_EQ(tokenizer.name(), "wordpiece-9");
  EXPECT_TRUE(tokenizer.is_special(1));
}

TEST(WordPiece, SaysWhichPartItDoesNotSupport) {
  const auto expect_refused = [](const char* pointer, Json value, std::string_view part) {
    Json json = small_words();
    json[Json::json_pointer(pointer)] = std::move(value);
    std::string message = "accepted";
    try {
      parsed(json);
    } catch (const UsageError& error) {
      message = error.what();
    }
    EXPECT_NE(message.find(part), std::string::npos) << message;
    EXPECT_NE(message.find("words.json"), std::string::npos) << message;
  };
  expect_refused("/model/type", "BPE", "model.type: is \"BPE\", expected WordPiece");
  expect_refused("/model/unk_token", "<unk>", "unk_token: is \"<unk>\", which is not in model.vocab");
  expect_refused("/model/vocab", 1, "vocab: is 1, expected an object");
  expect_refused("/model/vocab/a", 4, "and another token has this id");
  expect_refused("/model/max_input_chars_per_word", -1, "max_input_chars_per_word: is -1");
  expect_refused("/normalizer", {{"type", "NFC"}}, "normalizer is 'NFC', expected BertNormalizer");
  expect_refused("/pre_tokenizer", nullptr, "pre_tokenizer is 'none', expected BertPreTokenizer");
  expect_refused("/decoder", {{"type", "ByteLevel"}}, "decoder is 'ByteLevel', expected WordPiece");
  expect_refused("/decoder/prefix", "@@", "decoder.prefix: is \"@@\"");
}

}  // namespace
}  // namespace tutti
