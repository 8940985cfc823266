#include "tutti/io/gguf_vocabulary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/core/error.h"
#include "tutti/io/byte_alphabet.h"

namespace tutti {
namespace {

using Ids = std::vector<int32_t>;

// The 256 bytes by value, then "th", "the", "12", "123", <s> and <tool>.
GgufVocabulary byte_level(const std::string& pre) {
  GgufVocabulary made{.model = "gpt2", .pre = pre};
  for (int byte = 0; byte < 256; ++byte)
    made.tokens.push_back(io::to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  for (const char* token : {"th", "the", "12", "123", "<s>", "<tool>"}) made.tokens.emplace_back(token);
  made.token_types.assign(made.tokens.size(), 1);
  made.token_types[260] = 3;
  made.token_types[261] = 4;
  made.merges = {"t h", "th e", "1 2"};
  made.bos_id = 260;
  made.eos_id = 260;
  return made;
}

GgufVocabulary words() {
  return {.model = "bert",
          .tokens = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "\u2581a", "\u2581ab", "c", "\u2581[", "[unused1]"},
          .token_types = {3, 3, 3, 3, 1, 1, 1, 1, 1},
          .unknown_id = 1,
          .separator_id = 3,
          .cls_id = 2};
}

// <unk>, <s>, </s>, the bytes 0xC3 and 0xA9, characters, and what they make by their scores.
GgufVocabulary pieces() {
  GgufVocabulary made{.model = "llama",
                      .tokens = {"<unk>", "<s>", "</s>", "<0xC3>", "<0xA9>", "\u2581", "a", "b", "c", "ab", "bc", "abc",
                                 "\u2581a", "<tool>"},
                      .token_types = {2, 3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 4},
                      .scores = {0, 0, 0, 0, 0, -9, -9, -9, -9, -2, -1, -3, -4, 0},
                      .bos_id = 1,
                      .eos_id = 2,
                      .unknown_id = 0};
  return made;
}

std::string refusal_of(const GgufVocabulary& vocabulary) {
  try {
    tokenizer_of_gguf(vocabulary, "m.gguf");
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(GgufVocabulary, SplitsAsItsFamilyDoes) {
  const auto encode = [](const char* pre, std::string_view text) {
    return tokenizer_of_gguf(byte_level(pre), "m.gguf")->encode(text);
  };
  EXPECT_EQ(encode("gpt-2", "the 123"), (Ids{257, ' ', 258, '3'}));
  EXPECT_EQ(encode("smollm", "the123"), (Ids{257, '1', '2', '3'}));
  EXPECT_EQ(encode("qwen2", "the123"), (Ids{257, '1', '2', '3'}));
  EXPECT_EQ(encode("qwen2", "e\u0301"), (Ids{0xC3, 0xA9}));
  EXPECT_EQ(encode("llama-bpe", "the1231"), (Ids{257, 259, '1'})) << "a whole piece is taken without merging";
  EXPECT_EQ(encode("llama3", "e\u0301"), (Ids{'e', 0xCC, 0x81}));
}

TEST(GgufVocabulary, MergesByScores) {
  const auto encode = [](std::string_view text, bool framed = false) {
    return tokenizer_of_gguf(pieces(), "m.gguf")->encode(text, {.add_special_tokens = framed});
  };
  EXPECT_EQ(encode("abc"), (Ids{5, 11})) << "abc before the space with a";
  EXPECT_EQ(encode("abcc"), (Ids{5, 11, 8})) << "bc, not ab, is the first";
  EXPECT_EQ(encode("cab", true), (Ids{1, 5, 8, 9})) << "one BOS, and no EOS";
  EXPECT_EQ(encode("\u00e9"), (Ids{5, 3, 4}));
  EXPECT_EQ(encode("ex"), (Ids{5, 0})) << "bytes without tokens are unknown together";
  EXPECT_EQ(encode("a<tool>a"), (Ids{12, 13, 12})) << "a space before each stretch";
  EXPECT_EQ(encode("<s>"), (Ids{5, 0})) << "no special token";
  GgufVocabulary plain = pieces();
  plain.adds_space = false, plain.adds_bos = false, plain.adds_eos = true;
  const auto tokenizer = tokenizer_of_gguf(plain, "m.gguf");
  EXPECT_EQ(tokenizer->encode("abc", {.add_special_tokens = true}), (Ids{11, 2}));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" ab c")), " ab c");
  EXPECT_EQ(tokenizer_of_gguf(pieces(), "m.gguf")->decode(encode(" ab c\u00e9")), " ab c\u00e9");
}

// <unk>, <bos>, the bytes 0xC3 and 0xA9, characters and newlines, and what their merges make.
GgufVocabulary ranked() {
  return {.model = "gemma4",
          .tokens = {"<unk>", "<bos>", "<0xC3>", "<0xA9>", "\u2581", "a", "b", "\n", "\n\n", "\n\n\n", "ab", "\u2581a",
                     "<tool>"},
          .token_types = {3, 3, 6, 6, 1, 1, 1, 1, 1, 1, 1, 1, 4},
          .merges = {"\n\n \n", "\n \n\n", "\n \n", "\u2581 a", "a b"},
          .scores = std::vector<float>(13, -1000),
          .bos_id = 1,
          .unknown_id = 0};
}

// Scores say nothing, no space is put before the text, and runs of newlines are one token where there is one.
TEST(GgufVocabulary, MergesByRanks) {
  const auto tokenizer = tokenizer_of_gguf(ranked(), "m.gguf");
  EXPECT_EQ(tokenizer->encode("ab ab"), (Ids{10, 11, 6})) << "the space with a before a with b";
  EXPECT_EQ(tokenizer->encode("a\nb\n\nab\n\n\n", {.add_special_tokens = true}), (Ids{1, 5, 7, 6, 8, 10, 9}));
  EXPECT_EQ(tokenizer->encode("\n\n\n\n\n"), (Ids{9, 8}));
  EXPECT_EQ(tokenizer->encode("\u00e9<tool>x<bos>"), (Ids{2, 3, 12, 0, 6, 0})) << "no special token";
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(" ab\n\u00e9")), " ab\n\u00e9");
  GgufVocabulary spaced = ranked();
  spaced.adds_space = true, spaced.adds_bos = false, spaced.scores.clear();
  EXPECT_EQ(tokenizer_of_gguf(spaced, "m.gguf")->encode("ab", {.add_special_tokens = true}), (Ids{11, 6}));
}

TEST(GgufVocabulary, KnowsItsSpecialTokens) {
  const auto tokenizer = tokenizer_of_gguf(byte_level("gpt-2"), "m.gguf");
  EXPECT_EQ(tokenizer->encode("<s><tool>"), (Ids{'<', 's', '>', 261}));
  EXPECT_EQ(tokenizer->encode("<s><tool>", {.parse_special = true}), (Ids{260, 261}));
  EXPECT_EQ(tokenizer->bos_id(), 260);
  EXPECT_TRUE(tokenizer->is_special(260));
  EXPECT_FALSE(tokenizer->is_special(261));
}

TEST(GgufVocabulary, AddsBosAsTheFileOrTheFamilySays) {
  const auto framed = [](const GgufVocabulary& vocabulary) {
    return tokenizer_of_gguf(vocabulary, "m.gguf")->encode("a", {.add_special_tokens = true});
  };
  EXPECT_EQ(framed(byte_level("gpt-2")), Ids{'a'});
  EXPECT_EQ(framed(byte_level("llama-bpe")), (Ids{260, 'a'}));
  GgufVocabulary vocabulary = byte_level("llama-bpe");
  vocabulary.adds_bos = false;
  vocabulary.adds_eos = true;
  EXPECT_EQ(framed(vocabulary), (Ids{'a', 260}));
}

TEST(GgufVocabulary, ReadsTheWordsOfBert) {
  const auto tokenizer = tokenizer_of_gguf(words(), "m.gguf");
  EXPECT_EQ(tokenizer->encode("ABC ac [ x", {.add_special_tokens = true}), (Ids{2, 5, 6, 4, 6, 7, 1, 3}));
  EXPECT_EQ(tokenizer->decode(Ids{5, 6, 4}), "abc a");
  EXPECT_EQ(tokenizer->token_bytes(8), "[unused1]");
}

TEST(GgufVocabulary, IsRefusedWithoutAKnownPattern) {
  GgufVocabulary vocabulary = byte_level("default");
  EXPECT_EQ(
      refusal_of(vocabulary),
      "m.gguf: tokenizer.ggml.pre is 'default'; known are gpt-2, smollm, qwen2, deepseek-r1-qwen, llama-bpe, llama3, "
      "llama-v3");
  vocabulary.pre.reset();
  EXPECT_NE(refusal_of(vocabulary).find("m.gguf: has no tokenizer.ggml.pre"), std::string::npos);
  EXPECT_NE(refusal_of(vocabulary).find("known are gpt-2, "), std::string::npos);
}

TEST(GgufVocabulary, SaysWhatContradicts) {
  const auto expect_refused = [](GgufVocabulary vocabulary, const auto& change, std::string_view says) {
    change(vocabulary);
    EXPECT_NE(refusal_of(vocabulary).find(says), std::string::npos) << refusal_of(vocabulary);
  };
  using V = GgufVocabulary&;
  const GgufVocabulary bytes = byte_level("gpt-2");
  expect_refused(pieces(), [](V v) { v.scores.pop_back(); }, "tokenizer.ggml.scores has 13 entries");
  expect_refused(pieces(), [](V v) { v.scores[3] = NAN; }, "tokenizer.ggml.scores[3] is no number");
  expect_refused(pieces(), [](V v) { v.tokens[3] = "<0xZ0>"; }, "'<0xZ0>' is of type 6, and no byte such as <0x0A>");
  expect_refused(pieces(), [](V v) { v.tokens[7] = "a"; }, "token 7 'a' is there twice");
  expect_refused(pieces(), [](V v) { v.tokens[7] = std::string(300, 'x'); }, "token 7 has 300 bytes; at most 256");
  expect_refused(pieces(), [](V v) { v.bos_id = {}; }, "has no tokenizer.ggml.bos_token_id");
  expect_refused(ranked(), [](V v) { v.merges.clear(); }, "m.gguf: tokenizer.ggml.merges is empty or missing");
  expect_refused(ranked(), [](V v) { v.merges[4] = "a <bos>"; }, "merges[4] uses '<bos>', which is not a normal token");
  expect_refused(bytes, [](V v) { v.model = "t5"; }, "tokenizer.ggml.model is 't5'; supported are gpt2");
  expect_refused(bytes, [](V v) { v.tokens.clear(); }, "tokens is empty or missing");
  expect_refused(
      bytes, [](V v) { v.token_types.pop_back(); }, "token_type has 261 entries, and tokenizer.ggml.tokens 262");
  expect_refused(bytes, [](V v) { v.token_types[3] = 6; }, "token 3 is of type 6, a byte");
  expect_refused(bytes, [](V v) { v.token_types[257] = 9; }, "token 257 is of type 9; types are 1 to 6");
  expect_refused(bytes, [](V v) { v.tokens[260] = ""; }, "token 260 is of type 3 and empty");
  expect_refused(bytes, [](V v) { v.tokens[260] = "<tool>"; }, "token 261 '<tool>' is there twice");
  expect_refused(bytes, [](V v) { v.tokens[97] = "x1"; }, "no token for byte 97");
  expect_refused(bytes, [](V v) { v.merges[1] = "the"; }, "merges[1] is 'the', expected two tokens");
  expect_refused(bytes, [](V v) { v.merges[1] = ""; }, "merges[1] is ''");
  expect_refused(bytes, [](V v) { v.merges[1] = "th q"; }, "merges[1] uses 'thq', which is not a normal token");
  expect_refused(bytes, [](V v) { v.merges[1] = "t h"; }, "merges[1] is in the list twice");
  expect_refused(bytes, [](V v) { v.bos_id = 262; }, "bos_token_id is 262, and ids are 0 to 261");
  expect_refused(bytes, [](V v) { v.adds_bos = true, v.bos_id.reset(); }, "has no tokenizer.ggml.bos_token_id");
  expect_refused(words(), [](V v) { v.unknown_id.reset(); }, "has no tokenizer.ggml.unknown_token_id");
  expect_refused(words(), [](V v) { v.cls_id.reset(); }, "has no tokenizer.ggml.cls_token_id");
}

}  // namespace
}  // namespace tutti
