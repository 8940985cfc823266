// Tokenizers with byte fallback; ids against HuggingFace tokenizers are compared in published_tokenizer_test.cpp.
#include "tutti/io/sentence_piece_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/published_tokenizer.h"

namespace tutti {
namespace {

std::string file(const std::string& name) {
  return testing::read_whole_file(TUTTI_SOURCE_DIR "/tests/io/tokenizers/" + name + ".json");
}

// What is said of the file with `to` in the place of the first `from`.
std::string refusal(const std::string& name, const std::string& from, const std::string& to) {
  std::string json = file(name);
  const size_t at = json.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  try {
    parse_tokenizer(json.replace(at, from.size(), to), "", "t.json");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(SentencePieceTokenizer, RefusesByNameWhatItDoesNotDo) {
  const std::string replace = R"({"type":"Replace","pattern":{"String":" "},"content":"▁"})",
                    prepend = R"({"type":"Prepend","prepend":"▁"})";
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal("gemma", replace, R"({"type":"NFKC"})"), "normalizer: is 'NFKC'; supported with byte_fallback are");
  expect(refusal("gemma", R"(" "},"content":"▁")", R"(" "},"content":"_")"), "replaces something else than \" \"");
  expect(refusal("llama2", prepend, R"({"type":"Prepend","prepend":"x"})"), "puts something else than U+2581 before");
  expect(refusal("gemma", replace, "null"), "pre_tokenizer: is 'Split'");
  expect(refusal("llama2", "," + replace, ""), "neither the normalizer nor the pre_tokenizer replaces spaces");
  expect(refusal("mistral", "Metaspace", "Whitespace"), "pre_tokenizer: is 'Whitespace'");
  expect(refusal("mistral", R"("replacement":"▁")", R"("replacement":"_")"), "another replacement than U+2581");
  expect(refusal("mistral", R"("first")", R"("last")"), "is \"last\"; expected \"always\"");
  expect(refusal("mistral", R"("normalizer":null)", R"("normalizer":)" + prepend), "as the normalizer does");
  expect(refusal("llama2", R"("decoder":{"type":"Sequence")", R"("decoder":{"type":"ByteLevel")"),
         "decoder is 'ByteLevel', expected Metaspace");
  expect(refusal("llama2", R"("start":1)", R"("start":2)"), "strips something else than one space at the start");
  expect(refusal("llama2", R"({"type":"ByteFallback"},)", ""), "has the steps Replace, Fuse, Strip; expected");
  expect(refusal("llama2", R"("dropout":null)", R"("dropout":0.5)"),
         "is 0.5, which is not supported with byte_fallback");
  expect(refusal("llama2", R"("unk_token":"<unk>")", R"("unk_token":"none")"), "which is not in model.vocab");
  expect(refusal("llama2", R"(["t","h"])", R"(["t","nothing"])"), "uses 'nothing', which is not in model.vocab");
  expect(refusal("llama2", R"(["t","h"])", R"(["e","▁"])"), "is in the list twice");
  expect(refusal("llama2", R"("type":"BPE")", R"("type":"Unigram")"), "\"Unigram\"; supported are BPE and WordPiece");
}

TEST(SentencePieceTokenizer, KeepsAnyBytes) {
  const auto tokenizer = parse_tokenizer(file("gemma"), "", "t.json");
  std::string all = "caf\u00e9 \U0001F600  x ";
  for (int byte = 255; byte >= 0; --byte) all += static_cast<char>(byte);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(all)), all);
  EXPECT_EQ(tokenizer->text_nbytes(tokenizer->encode(all)), static_cast<int64_t>(all.size()));
}

TEST(SentencePieceTokenizer, NeverMakesASpecialTokenOfText) {
  const auto tokenizer = parse_tokenizer(file("llama2"), "", "t.json");
  for (const int32_t id : tokenizer->encode("<s> and </s>")) EXPECT_FALSE(tokenizer->is_special(id));
  EXPECT_TRUE(tokenizer->is_special(tokenizer->encode("<s>", {.parse_special = true}).front()));
}

TEST(SentencePieceTokenizer, KnowsTokensOfBytes) {
  EXPECT_EQ(io::byte_of_token("<0x0A>"), 10);
  EXPECT_EQ(io::byte_of_token("<0xFF>"), 255);
  for (const char* text : {"<0xff>", "<0x0A", "0x0A>", "<0x0A>>", "<0xG0>", "<0x+1>", ""})
    EXPECT_EQ(io::byte_of_token(text), std::nullopt) << text;
}

}  // namespace
}  // namespace tutti
