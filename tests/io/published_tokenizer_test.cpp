// Ids against HuggingFace tokenizers; tests/io/tokenizers/make_cases.py made the files.
#include "tutti/io/published_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/sentence_piece_tokenizer.h"
#include "tutti/io/word_piece_tokenizer.h"

namespace tutti {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;

const std::string kFolder = TUTTI_SOURCE_DIR "/tests/io/tokenizers/";

Json read_json(const std::string& name) { return Json::parse(testing::read_whole_file(kFolder + name)); }

class PublishedTokenizer : public ::testing::TestWithParam<const char*> {
 protected:
  const std::vector<std::string> texts = read_json("texts.json").get<std::vector<std::string>>();
  const Json expected = read_json(GetParam() + std::string(".ids.json"));
  const std::unique_ptr<Tokenizer> tokenizer = load_tokenizer(kFolder + GetParam() + ".json");
};

TEST_P(PublishedTokenizer, GivesTheIdsOfItsLibrary) {
  int differences = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    const Ids plain = expected["plain"][i].get<Ids>();
    const Json& special = expected["special"];
    const std::string key = std::to_string(i);
    differences += tokenizer->encode(texts[i]) != plain;
    EXPECT_EQ(tokenizer->encode(texts[i]), plain) << i << ": " << texts[i];
    EXPECT_EQ(tokenizer->encode(texts[i], {.parse_special = true}),
              special.contains(key) ? special[key].get<Ids>() : plain)
        << i << ": " << texts[i];
  }
  EXPECT_EQ(differences, 0);
  EXPECT_EQ(tokenizer->encode(texts[2], {.add_special_tokens = true}), expected["framed"].get<Ids>());
}

TEST_P(PublishedTokenizer, DecodesAsItsLibraryDoes) {
  if (GetParam() == std::string("flags")) return;  // whose library does not decode all added tokens to their text
  for (size_t i = 0; i < texts.size(); ++i) {
    const Json& decoded = expected["decoded"];
    const std::string key = std::to_string(i);
    EXPECT_EQ(tokenizer->decode(expected["plain"][i].get<Ids>()),
              decoded.contains(key) ? decoded[key].get<std::string>() : texts[i])
        << i;
  }
}

TEST_P(PublishedTokenizer, GivesTheSameIdsFromItsOwnFile) {
  testing::TemporaryFolder folder;
  if (const auto* bpe = dynamic_cast<const BpeTokenizer*>(tokenizer.get())) bpe->save_with_markers(folder.path());
  if (const auto* words = dynamic_cast<const WordPieceTokenizer*>(tokenizer.get()))
    words->save_with_markers(folder.path());
  if (const auto* pieces = dynamic_cast<const SentencePieceTokenizer*>(tokenizer.get()))
    pieces->save_with_markers(folder.path());
  const auto again = load_tokenizer(folder / "tokenizer.json");
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  const EncodeOptions both{.add_special_tokens = true, .parse_special = true};
  for (const std::string& text : texts) EXPECT_EQ(again->encode(text, both), tokenizer->encode(text, both)) << text;
}

INSTANTIATE_TEST_SUITE_P(, PublishedTokenizer,
                         ::testing::Values("gpt2", "smollm2", "qwen2", "llama3", "prefix_space", "flags", "bert",
                                           "bert_cased", "llama2", "mistral", "metaspace", "gemma"),
                         [](const auto& info) { return std::string(info.param); });

TEST(PublishedTokenizers, OfAnotherModelAreRefused) {
  try {
    parse_tokenizer(R"({"model": {"type": "Unigram", "vocab": []}})", "", "other.json");
    FAIL() << "accepted";
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "other.json: model.type: is \"Unigram\"; supported are BPE and WordPiece");
  }
}

}  // namespace
}  // namespace tutti
