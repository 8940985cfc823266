// The vocabulary of a tokenizer.json in the metadata of a GGUF file.
#include "tutti/models/gguf_vocabulary_writer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "tests/support/temporary_folder.h"
#include "tutti/io/bpe_model.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/gguf_vocabulary.h"
#include "tutti/io/sentence_piece_tokenizer.h"

namespace tutti::models {
namespace {

using tutti::testing::TemporaryFolder;

// All bytes, one merge, and added tokens at both ends.
BpeModel small_tokenizer(const std::vector<std::string>& patterns) {
  BpeModel model;
  for (int i = 0; i < 256; ++i) {
    model.vocab.emplace_back(std::string(1, static_cast<char>(i)));
    model.bytes.ids[static_cast<size_t>(i)] = i;
  }
  model.vocab.emplace_back(" a");
  model.merges = {{' ', 'a', 256}};
  model.added_tokens = {{258, "<|end|>", true}, {260, "<tool>", false}};
  model.split_patterns = patterns;
  // As the published models of these patterns.
  model.normalizes_nfc = patterns[0] == io::kQwenSplitPattern;
  model.ignores_merges = patterns[0] == io::kLlama3SplitPattern;
  model.eos_id = 258;
  return model;
}

struct Written {
  ModelMetadata metadata;
  std::optional<std::string> missing;
};
Written vocabulary_of(const std::string& tokenizer, const std::string& config, int64_t vocab = 262,
                      const char* architecture = nullptr) {
  const TemporaryFolder folder;
  if (!tokenizer.empty()) folder.write("tokenizer.json", tokenizer);
  if (!config.empty()) folder.write("tokenizer_config.json", config);
  Written written;
  if (architecture != nullptr) written.metadata.set("general.architecture", architecture);
  written.missing = write_gguf_vocabulary(folder.path(), vocab,
                                          {.positions = {}, .bos_token = 7, .pad_token = 259, .eos_tokens = {5, 6}},
                                          written.metadata);
  return written;
}

TEST(GgufVocabulary, HasATextForEachRowOfTheEmbedding) {
  const Written written = vocabulary_of(
      io::tokenizer_json_of(small_tokenizer({io::kQwenSplitPattern})),
      R"({"eos_token": {"content": "<|end|>"}, "pad_token": "<tool>", "add_bos_token": false, "chat_template": "{{ messages }}"})");
  ASSERT_EQ(written.missing, std::nullopt) << *written.missing;
  const ModelMetadata& m = written.metadata;
  EXPECT_EQ(m.at("tokenizer.ggml.model").text(), "gpt2");
  EXPECT_EQ(m.at("tokenizer.ggml.pre").text(), "qwen2");
  const std::vector<std::string> tokens = m.at("tokenizer.ggml.tokens").texts();
  const std::vector<int64_t> types = m.at("tokenizer.ggml.token_type").wholes();
  ASSERT_EQ(tokens.size(), 262u);
  ASSERT_EQ(types.size(), 262u);
  const std::tuple<size_t, const char*, int64_t> expected[] = {
      {'a', "a", 1},       {' ', "Ġ", 1},      {256, "Ġa", 1},      {257, "[PAD257]", 5},
      {258, "<|end|>", 3}, {260, "<tool>", 4}, {261, "[PAD261]", 5}};
  for (const auto& [id, text, type] : expected) {
    EXPECT_EQ(tokens[id], text);
    EXPECT_EQ(types[id], type) << text;
  }
  EXPECT_EQ(m.at("tokenizer.ggml.merges").texts(), std::vector<std::string>{"Ġ a"});
  EXPECT_EQ(m.at("tokenizer.ggml.bos_token_id").whole(), 7);
  EXPECT_EQ(m.at("tokenizer.ggml.eos_token_id").whole(), 258) << "the tokenizer names it";
  EXPECT_EQ(m.at("tokenizer.ggml.padding_token_id").whole(), 260);
  EXPECT_FALSE(m.at("tokenizer.ggml.add_bos_token").boolean());
  EXPECT_EQ(m.at("tokenizer.chat_template").text(), "{{ messages }}");
}

TEST(GgufVocabulary, NamesTheWayInWhichTextsAreSplit) {
  for (const auto& [patterns, name] : std::initializer_list<std::pair<std::vector<std::string>, std::string>>{
           {{io::kGpt2SplitPattern}, "gpt-2"},
           {{io::kDigitPattern, io::kGpt2SplitPattern}, "smollm"},
           {{io::kQwenSplitPattern}, "qwen2"},
           {{io::kLlama3SplitPattern}, "llama-bpe"}}) {
    const Written written = vocabulary_of(io::tokenizer_json_of(small_tokenizer(patterns)), "");
    ASSERT_EQ(written.missing, std::nullopt) << *written.missing;
    EXPECT_EQ(written.metadata.at("tokenizer.ggml.pre").text(), name);
    EXPECT_EQ(written.metadata.at("tokenizer.ggml.eos_token_id").whole(), 5) << "the first that the model names";
    EXPECT_EQ(written.metadata.at("tokenizer.ggml.padding_token_id").whole(), 259);
  }
}

// A file says these by the name of the patterns only, or not at all.
TEST(GgufVocabulary, IsMissingWhereItsReaderWouldMakeOtherIds) {
  const std::pair<std::function<void(BpeModel&)>, const char*> cases[] = {
      {[](BpeModel& m) { m.normalizes_nfc = false; }, "it does not normalize texts"},
      {[](BpeModel& m) { m.ignores_merges = true; }, "whole tokens are not merged"},
      {[](BpeModel& m) { m.added_tokens[1].lstrip = true; }, "<tool> is found with a flag"},
      {[](BpeModel& m) { m.frame.before = {258, 258}; }, "framed by several tokens"}};
  for (const auto& [change, reason] : cases) {
    BpeModel model = small_tokenizer({io::kQwenSplitPattern});
    change(model);
    const Written written = vocabulary_of(io::tokenizer_json_of(model), "");
    ASSERT_TRUE(written.missing.has_value()) << reason;
    EXPECT_NE(written.missing->find(reason), std::string::npos) << *written.missing;
  }
}

// The reader of this library makes the ids of the tokenizer.json from it, with any options.
TEST(GgufVocabulary, GivesTheIdsOfItsTokenizer) {
  const std::string folder = TUTTI_SOURCE_DIR "/tests/io/tokenizers/";
  const std::vector<std::string> texts{
      "", "a", " two words ", "123456 don't", "<|endoftext|>x<|im_end|>", "e\u0301 \u4e2d\u6587 \xff\n\n\n"};
  for (const std::string family : {"gpt2", "smollm2", "qwen2", "llama3"}) {
    const std::string path = folder + family + ".json";
    const auto original = BpeTokenizer::load(path);
    ModelMetadata metadata;
    const TemporaryFolder copy;
    std::filesystem::copy_file(path, copy / "tokenizer.json");
    const auto missing = write_gguf_vocabulary(copy.path(), original->vocab_size() + 3, {}, metadata);
    ASSERT_EQ(missing, std::nullopt) << family << ": " << *missing;
    const auto read = tokenizer_of_gguf(read_gguf_vocabulary(metadata), family);
    for (const std::string& text : texts) {
      for (const bool adds : {false, true}) {
        for (const bool parses : {false, true}) {
          const EncodeOptions options{.add_special_tokens = adds, .parse_special = parses};
          EXPECT_EQ(read->encode(text, options), original->encode(text, options)) << family << ": " << text;
        }
      }
    }
  }
}

TEST(GgufVocabulary, IsMissingWithTheReason) {
  const std::string good = io::tokenizer_json_of(small_tokenizer({io::kQwenSplitPattern}));
  const std::tuple<std::string, int64_t, const char*> cases[] = {
      {"", 262, "has no tokenizer.json."},
      {io::tokenizer_json_of(small_tokenizer({"[a-z]+|."})), 262, "llama.cpp has no name for the way in which"},
      {good, 260, "tokenizer.json has 261 ids, and the model's vocabulary 260."},
      {R"({"model": {"type": "Unigram"}})", 262, "tokenizer.json: model"}};
  for (const auto& [tokenizer, vocab, reason] : cases) {
    const Written written = vocabulary_of(tokenizer, "", vocab);
    ASSERT_TRUE(written.missing.has_value());
    EXPECT_NE(written.missing->find(reason), std::string::npos) << *written.missing;
    EXPECT_EQ(written.metadata.size(), 1u);
    EXPECT_EQ(written.metadata.at("tokenizer.ggml.model").text(), "none");
  }
}

// Characters, a byte, and what they make by scores, with the ids that a GGUF file of them has.
SentencePieceModel pieces() {
  SentencePieceModel model;
  const std::vector<std::string> tokens{"<unk>", "<s>", "</s>", "<0xC3>", "\u2581", "a", "b", "c", "ab", "bc", "abc"};
  for (const std::string& token : tokens) model.vocab.emplace_back(token);
  model.bytes.ids.fill(io::ByteTokens::kNoToken);
  model.bytes.ids[0xC3] = 3;
  model.bytes.unknown = 0, model.bytes.fuses_unknown = true;
  model.merges = {{6, 7, 9}, {5, 6, 8}, {5, 9, 10}, {8, 7, 10}};
  model.added_tokens = {{0, "<unk>", true}, {1, "<s>", true}, {2, "</s>", true}, {12, "<tool>", false}};
  model.prefix = SentencePieceModel::Prefix::every_stretch;
  model.strips_space = true;
  model.frame.before = {1};
  model.bos_id = 1, model.eos_id = 2;
  return model;
}

TEST(GgufVocabulary, HasScoresForMergesOfCharacters) {
  const SentencePieceTokenizer tokenizer(pieces());
  const std::string config = R"({"bos_token": "<s>", "eos_token": "</s>"})";
  const Written written = vocabulary_of(tokenizer.to_json(), config, 14);
  ASSERT_EQ(written.missing, std::nullopt) << *written.missing;
  EXPECT_EQ(written.metadata.at("tokenizer.ggml.model").text(), "llama");
  EXPECT_EQ(written.metadata.at("tokenizer.ggml.token_type").wholes(),
            (std::vector<int64_t>{2, 3, 3, 6, 1, 1, 1, 1, 1, 1, 1, 5, 4, 5}));
  const auto again = tokenizer_of_gguf(read_gguf_vocabulary(written.metadata), "written");
  const EncodeOptions all{.add_special_tokens = true, .parse_special = true};
  for (const char* text : {"", "abc", "a bc<s>ab<tool> cab", " abcabc\u00c3 x", "abab"}) {
    EXPECT_EQ(again->encode(text, all), tokenizer.encode(text, all)) << text;
    EXPECT_EQ(again->encode(text), tokenizer.encode(text)) << text;
  }
  EXPECT_EQ(again->bos_id(), 1);
  EXPECT_EQ(again->eos_id(), 2);
}

// llama.cpp looks for the merges themselves in files of Gemma 4.
TEST(GgufVocabulary, HasMergesOfCharactersInFilesOfGemma4) {
  SentencePieceModel model = pieces();
  model.merges = {{5, 9, 10}, {5, 6, 8}, {6, 7, 9}};  // which scores could not say
  model.prefix = SentencePieceModel::Prefix::never, model.strips_space = false;
  const SentencePieceTokenizer tokenizer(model);
  const Written written = vocabulary_of(tokenizer.to_json(), "", 14, "gemma4");
  ASSERT_EQ(written.missing, std::nullopt) << *written.missing;
  EXPECT_EQ(written.metadata.at("tokenizer.ggml.model").text(), "gemma4");
  EXPECT_EQ(written.metadata.at("tokenizer.ggml.merges").texts(), (std::vector<std::string>{"a bc", "a b", "b c"}));
  EXPECT_FALSE(written.metadata.at("tokenizer.ggml.add_space_prefix").boolean());
  const auto again = tokenizer_of_gguf(read_gguf_vocabulary(written.metadata), "written");
  for (const char* text : {"", "abc", "a bc<s>ab<tool> cab", " abcabc\u00c3 x", "abab"})
    EXPECT_EQ(again->encode(text), tokenizer.encode(text)) << text;

  const auto missing = [&](const std::function<void(SentencePieceModel&)>& change) {
    SentencePieceModel changed = model;
    change(changed);
    const std::string text = *vocabulary_of(SentencePieceTokenizer(changed).to_json(), "", 14, "gemma4").missing;
    return text.substr(text.find(" that ") + 6);
  };
  EXPECT_EQ(missing([](SentencePieceModel& m) { m.prefix = SentencePieceModel::Prefix::every_stretch; }),
            "a space is put before texts.");
  EXPECT_EQ(missing([](SentencePieceModel& m) {
              m.vocab[6] = "\n", m.vocab[9] = "\nc", m.vocab[8] = "a\n", m.vocab[10] = "a\nc";
            }),
            "merges join newlines with other characters.");
}

TEST(GgufVocabulary, IsNotWrittenWhereScoresWouldSayOtherwise) {
  const auto missing = [](const std::function<void(SentencePieceModel&)>& change) {
    SentencePieceModel model = pieces();
    change(model);
    const std::string text = *vocabulary_of(SentencePieceTokenizer(model).to_json(), "", 14).missing;
    return text.substr(text.find(" that ") + 6);
  };
  using M = SentencePieceModel&;
  EXPECT_EQ(missing([](M m) { m.merges.pop_back(); }), "its merges are not those of scores.");
  EXPECT_EQ(missing([](M m) { std::swap(m.merges[1], m.merges[2]), std::swap(m.merges[1], m.merges[3]); }),
            "its merges are not those of scores.")
      << "ab before c makes abc, though a and bc come first";
  EXPECT_EQ(missing([](M m) { m.ignores_merges = true; }), "whole tokens are not merged.");
  EXPECT_EQ(missing([](M m) { m.splits_words = true; }), "merges end where words begin.");
  EXPECT_EQ(missing([](M m) { m.prefix = SentencePieceModel::Prefix::unless_there; }),
            "a space is put before a text only where it has none.");
  EXPECT_EQ(missing([](M m) { m.added_tokens[3].lstrip = true; }),
            "<tool> is found with a flag (lstrip, rstrip, single_word or normalized).");
  EXPECT_NE(vocabulary_of(SentencePieceTokenizer(pieces()).to_json(), "", 12).missing->find("has 13 ids"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::models
