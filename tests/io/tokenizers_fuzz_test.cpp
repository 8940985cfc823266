// Damaged tokenizer files and vocabularies either load or raise one of Tutti's errors, and what loads encodes any
// bytes.
#include <gtest/gtest.h>

#include "tests/io/support/sample_text.h"
#include "tests/support/fuzz_rounds.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/bert_normalizer.h"
#include "tutti/io/byte_alphabet.h"
#include "tutti/io/gguf_vocabulary.h"
#include "tutti/io/nfc.h"
#include "tutti/io/published_tokenizer.h"
#include "tutti/io/utf8.h"

namespace tutti {
namespace {

using testing::FuzzRounds;
using testing::mutated;

constexpr uint32_t kSeed = 20261128;

// What loads encodes `text` to ids that exist.
template <class Load>
bool loads(const Load& load, std::string_view text) {
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = load();
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
  for (const bool on : {false, true}) {
    const std::vector<int32_t> ids = tokenizer->encode(text, {.add_special_tokens = on, .parse_special = on});
    tokenizer->decode(ids);
  }
  return true;
}

TEST(TokenizersFuzz, PublishedFilesLoadOrRaise) {
  std::vector<std::string> files;
  for (const char* name : {"smollm2", "llama3", "flags", "prefix_space", "bert", "llama2", "metaspace", "gemma"})
    files.push_back(testing::read_whole_file(TUTTI_SOURCE_DIR "/tests/io/tokenizers/" + std::string(name) + ".json"));
  std::mt19937 random(kSeed);
  int64_t refused = 0;
  FuzzRounds rounds(1500);
  while (rounds.go_on()) {
    const std::string& whole = files[static_cast<size_t>(rounds.index()) % files.size()];
    // Damage to the steps at the beginning, then to the rest.
    const size_t head = whole.find("\"vocab\"");
    ASSERT_NE(head, std::string::npos);
    const std::string damaged =
        rounds.index() % 3 == 0 ? mutated(whole, random) : mutated(whole.substr(0, head), random) + whole.substr(head);
    const std::string text = testing::random_bytes(random, 20) + "caf\u00e9  <left> solo [SEP]<|im_start|>1";
    refused += !loads([&] { return parse_tokenizer(damaged, "", "damaged.json"); }, text);
  }
  EXPECT_GT(refused, rounds.made() / 5);
}

TEST(TokenizersFuzz, GgufVocabulariesLoadOrRaise) {
  GgufVocabulary whole{.model = "gpt2", .pre = "llama-bpe", .bos_id = 258, .eos_id = 258};
  for (int byte = 0; byte < 256; ++byte)
    whole.tokens.push_back(io::to_byte_alphabet(std::string(1, static_cast<char>(byte))));
  for (const char* token : {"th", "the", "<s>"}) whole.tokens.emplace_back(token);
  whole.token_types.assign(whole.tokens.size(), 1);
  whole.token_types[258] = 3;
  whole.merges = {"t h", "th e"};
  std::mt19937 random(kSeed);
  int64_t refused = 0;
  FuzzRounds rounds(2000);
  while (rounds.go_on()) {
    const int64_t i = rounds.index();
    GgufVocabulary damaged = whole;
    if (i % 4 == 0) damaged.model = "bert", damaged.unknown_id = 257, damaged.cls_id = damaged.separator_id = 258;
    if (i % 4 == 1) {
      damaged.model = "llama";
      for (size_t id = 0; id < damaged.tokens.size(); ++id)
        damaged.scores.push_back(static_cast<float>(random() % 7) - static_cast<float>(id == 256));
    }
    if (i % 4 == 2) damaged.model = "gemma4";
    std::string& token = damaged.tokens[random() % damaged.tokens.size()];
    token = mutated(token + " ", random);
    if (i % 3 == 0) damaged.merges[random() % 2] = mutated("th e", random);
    if (i % 5 == 0) damaged.token_types[random() % damaged.token_types.size()] = static_cast<int32_t>(random() % 9) - 1;
    if (i % 7 == 0) damaged.bos_id = static_cast<int64_t>(random()) - (int64_t{1} << 31);
    if (i % 11 == 0) damaged.tokens.resize(random() % damaged.tokens.size());
    refused +=
        !loads([&] { return tokenizer_of_gguf(damaged, "damaged"); }, testing::random_bytes(random, 40) + "the<s>");
  }
  EXPECT_GT(refused, rounds.made() / 4);
  EXPECT_LT(refused, rounds.made());
}

TEST(TokenizersFuzz, NormalizersMakeUtf8OfAnyBytes) {
  std::mt19937 random(kSeed);
  for (int i = 0; i < 5000; ++i) {
    std::string text = testing::random_bytes(random, random() % 30);
    for (int more = 0; more < 10; ++more) io::utf8_append(random() % (i % 2 == 0 ? 0x3000 : 0xD800), text);
    const io::BertNormalization options{.clean_text = (i & 1) != 0,
                                        .handle_chinese_chars = (i & 2) != 0,
                                        .strip_accents = (i & 4) != 0,
                                        .lowercase = (i & 8) != 0};
    const std::string normalized = io::bert_normalized(text, options);
    ASSERT_EQ(io::utf8_valid_prefix_nbytes(normalized), normalized.size());
    size_t nbytes = 0;
    for (const std::string_view word : io::bert_words(normalized)) nbytes += word.size();
    ASSERT_LE(nbytes, normalized.size());
    if (!options.handle_chinese_chars) {  // which adds spaces each time
      ASSERT_EQ(io::bert_normalized(normalized, options), normalized);
    }
    std::string storage;
    io::to_nfc(text, storage);
  }
}

}  // namespace
}  // namespace tutti
