// What a tokenizer is made of is written, read back and compared without loss, markers included.
#include "tutti/io/tokenizer_difference.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/io/support/sample_text.h"
#include "tests/support/temporary_folder.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/bpe_trainer.h"
#include "tutti/io/byte_tokenizer.h"

namespace tutti {
namespace {

using Json = nlohmann::json;

// A learned model with markers of every published kind: in model.vocab or behind it, ASCII or not, with a space.
BpeModel model_with_markers() {
  BpeModel model = train_bpe(testing::sample_documents(50), {.vocab_size = 300});
  model.vocab.emplace_back(std::nullopt);  // the learned <|endoftext|>, which stands behind model.vocab
  for (const char* content : {"<s>", "</s>", "<\uFF5Cend\u2581of\u2581sentence\uFF5C>", "<|a marker|>"}) {
    const auto id = static_cast<int32_t>(model.vocab.size());
    model.vocab.emplace_back(content);
    model.added_tokens.push_back({id, content, true});
  }
  model.added_tokens.push_back({static_cast<int32_t>(model.vocab.size()), "<|behind|>", true});
  return model;
}

std::unique_ptr<BpeTokenizer> with_markers(std::optional<int32_t> bos, std::optional<int32_t> eos) {
  BpeModel model = model_with_markers();
  model.bos_id = bos;
  model.eos_id = eos;
  return std::make_unique<BpeTokenizer>(std::move(model));
}

TEST(TokenizerFolder, GivesBackEveryChoiceOfMarkers) {
  const BpeModel model = model_with_markers();
  std::vector<std::optional<int32_t>> markers = {std::nullopt};
  for (const AddedToken& token : model.added_tokens) markers.push_back(token.id);
  for (const auto bos : markers) {
    for (const auto eos : markers) {
      const testing::TemporaryFolder folder;
      const auto saved = with_markers(bos, eos);
      saved->save_with_markers(folder.path());
      const auto loaded = BpeTokenizer::load(folder / "tokenizer.json");
      EXPECT_EQ(loaded->bos_id(), bos);
      EXPECT_EQ(loaded->eos_id(), eos);
      EXPECT_EQ(loaded->fingerprint(), saved->fingerprint());
      EXPECT_EQ(first_difference(*saved, *loaded), "");
    }
  }
}

TEST(TokenizerFolder, TakesMarkersAsTextOrAsObjects) {
  const testing::TemporaryFolder folder;
  with_markers(std::nullopt, std::nullopt)->save(folder / "tokenizer.json");
  const Json object = {{"__type", "AddedToken"}, {"content", "</s>"}, {"lstrip", false}, {"normalized", false}};
  for (const Json& eos : {Json("</s>"), object}) {
    folder.write("tokenizer_config.json",
                 Json{{"bos_token", "<s>"}, {"eos_token", eos}, {"model_max_length", 4096}}.dump());
    const auto read = BpeTokenizer::load(folder / "tokenizer.json");
    const testing::TemporaryFolder copy;
    read->save_with_markers(copy.path());
    const auto again = BpeTokenizer::load(copy / "tokenizer.json");
    EXPECT_EQ(again->token_bytes(again->bos_id().value()), "<s>");
    EXPECT_EQ(again->token_bytes(again->eos_id().value()), "</s>");
  }
}

TEST(TokenizerDifference, NamesWhatDiffersFirst) {
  const auto plain = with_markers(std::nullopt, 300);
  EXPECT_EQ(first_difference(*plain, ByteTokenizer()), "it had 305 tokens, and has 258");
  EXPECT_EQ(first_difference(*plain, *with_markers(300, 300)), "its BOS was none, and is token 300 '<s>'");
  EXPECT_EQ(first_difference(*plain, *with_markers(std::nullopt, 301)),
            "its EOS was token 300 '<s>', and is token 301 '</s>'");
  BpeModel other = model_with_markers();
  other.eos_id = 300;
  std::swap(other.merges[0], other.merges[1]);
  EXPECT_EQ(first_difference(*plain, BpeTokenizer(other)),
            "its tokens are the same, and it splits or merges text in another way");
  other.added_tokens.back().content = "<|another|>";
  EXPECT_EQ(first_difference(*plain, BpeTokenizer(other)),
            "one of its tokens was token 304 '<|behind|>', and is token 304 '<|another|>'");
}

}  // namespace
}  // namespace tutti
