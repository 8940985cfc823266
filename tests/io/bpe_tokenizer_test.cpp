#include "tutti/io/bpe_tokenizer.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/io/support/sample_text.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/byte_alphabet.h"

namespace tutti {
namespace {

using Ids = std::vector<int32_t>;
using Json = nlohmann::json;
using testing::TemporaryFolder;

constexpr int32_t kEndOfText = 260;

// All bytes by value, then "th", "the", " the", "in", and two markers of which one begins the other.
Json small_tokenizer() {
  Json vocab;
  for (int byte = 0; byte < 256; ++byte) vocab[io::to_byte_alphabet(std::string(1, static_cast<char>(byte)))] = byte;
  vocab["th"] = 256;
  vocab["the"] = 257;
  vocab["\u0120the"] = 258;
  vocab["in"] = 259;
  const auto added = [](int32_t id, const char* content, bool special) {
    return Json{{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
                {"rstrip", false}, {"normalized", false}, {"special", special}};
  };
  return {{"added_tokens", {added(kEndOfText, "<|endoftext|>", true), added(261, "<|endoftext|>>", false)}},
          {"normalizer", nullptr},
          {"pre_tokenizer",
           {{"type", "Sequence"},
            {"pretokenizers",
             {{{"type", "Split"},
               {"pattern", {{"Regex", io::kQwenSplitPattern}}},
               {"behavior", "Isolated"},
               {"invert", false}},
              {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}}}}},
          {"decoder", {{"type", "ByteLevel"}}},
          {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"t h", "th e", "\u0120 the", "i n"}}}}};
}

std::unique_ptr<BpeTokenizer> parsed(const Json& json) { return BpeTokenizer::parse(json.dump(), "small.json"); }

std::string message_of(const Json& json) {
  try {
    parsed(json);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "accepted";
}

void expect_refused(const Json& json, std::string_view part) {
  const std::string message = message_of(json);
  EXPECT_NE(message.find(part), std::string::npos) << message;
  EXPECT_NE(message.find("small.json"), std::string::npos) << message;
}

TEST(BpeTokenizer, MergesByRank) {
  EXPECT_EQ(parsed(small_tokenizer())->encode("the thin"), (Ids{257, ' ', 256, 259}));
  EXPECT_EQ(parsed(small_tokenizer())->encode("in the"), (Ids{259, 258}));
}

TEST(BpeTokenizer, ReadsMergesAsPairs) {
  Json json = small_tokenizer();
  json["model"]["merges"] = Json::array(
      {Json::array({"t", "h"}), Json::array({"th", "e"}), Json::array({"\u0120", "the"}), Json::array({"i", "n"})});
  EXPECT_EQ(parsed(json)->encode("in the"), (Ids{259, 258}));
}

TEST(BpeTokenizer, FindsTheLongestAddedTokenFirst) {
  const auto tokenizer = parsed(small_tokenizer());
  EXPECT_EQ(tokenizer->encode("a<|endoftext|>b<|endoftext|>>", {.parse_special = true}),
            (Ids{'a', kEndOfText, 'b', 261}));
  EXPECT_EQ(tokenizer->encode("<|endoftext|", {.parse_special = true}), tokenizer->encode("<|endoftext|"));
}

TEST(BpeTokenizer, MakesNoSpecialTokensUnlessAsked) {
  const auto tokenizer = parsed(small_tokenizer());
  EXPECT_EQ(tokenizer->encode("<|endoftext|>"), (Ids{'<', '|', 'e', 'n', 'd', 'o', 'f', 't', 'e', 'x', 't', '|', '>'}));
  EXPECT_EQ(tokenizer->encode("<|endoftext|>>"), Ids{261}) << "an added token that is not special is text";
}

TEST(BpeTokenizer, FramesTextWhenAsked) {
  Json json = small_tokenizer();
  const uint64_t fingerprint = parsed(json)->fingerprint();
  const Json end = {{"id", "<|endoftext|>"}, {"ids", {kEndOfText}}, {"tokens", {"<|endoftext|>"}}};
  json["post_processor"] = {{"type", "Sequence"},
                            {"processors",
                             {{{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}},
                              {{"type", "TemplateProcessing"},
                               {"single",
                                {{{"SpecialToken", {{"id", "<|endoftext|>"}, {"type_id", 0}}}},
                                 {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
                               {"pair", Json::array()},
                               {"special_tokens", {{"<|endoftext|>", end}}}}}}};
  const auto tokenizer = parsed(json);
  EXPECT_EQ(tokenizer->encode("in"), Ids{259});
  EXPECT_EQ(tokenizer->encode("in", {.add_special_tokens = true}), (Ids{kEndOfText, 259}));
  EXPECT_EQ(tokenizer->fingerprint(), fingerprint) << "the ids of the text itself are the same";
  const auto again = BpeTokenizer::parse(tokenizer->to_json(), "again");
  EXPECT_EQ(again->encode("in", {.add_special_tokens = true}), (Ids{kEndOfText, 259}));
}

TEST(BpeTokenizer, ReadsTheStepsOfPublishedFiles) {
  Json json = small_tokenizer();
  json["model"]["unk_token"] = "the";  // of no use where all bytes have tokens
  json["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}}}};
  json["decoder"] = {{"type", "Sequence"}, {"decoders", {{{"type", "ByteLevel"}}}}};
  json["pre_tokenizer"]["pretokenizers"][0] = {{"type", "Digits"}, {"individual_digits", true}};
  json["pre_tokenizer"]["pretokenizers"][1] = {{"type", "ByteLevel"}, {"add_prefix_space", true}};
  const auto tokenizer = parsed(json);
  EXPECT_EQ(tokenizer->encode("the1"), (Ids{258, ' ', '1'}));
  EXPECT_EQ(tokenizer->encode("e\u0301"), (Ids{' ', 0xC3, 0xA9}));
  const auto again = BpeTokenizer::parse(tokenizer->to_json(), "again");
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  EXPECT_EQ(again->encode("the12the"), tokenizer->encode("the12the"));
}

TEST(BpeTokenizer, LeavesOutBytesWithoutATokenOrMakesThemUnknown) {
  Json json = small_tokenizer();
  for (const char* byte : {"\u00c3", "\u00a9"}) json["model"]["vocab"].erase(byte);  // the bytes of U+00E9
  EXPECT_EQ(parsed(json)->encode("t\u00e9he"), (Ids{257})) << "what is left is merged";
  json["model"]["unk_token"] = "in";
  EXPECT_EQ(parsed(json)->encode("t\u00e9he"), (Ids{'t', 259, 259, 'h', 'e'}));
  json["model"]["fuse_unk"] = true;
  EXPECT_EQ(parsed(json)->encode("t\u00e9he\u00e9"), (Ids{'t', 259, 'h', 'e', 259}));
  const auto again = BpeTokenizer::parse(parsed(json)->to_json(), "again");
  EXPECT_EQ(again->encode("t\u00e9he\u00e9"), (Ids{'t', 259, 'h', 'e', 259}));
}

TEST(BpeTokenizer, FingerprintsAsBeforeWhereAFlagMakesNoDifference) {
  Json json = small_tokenizer();
  const uint64_t fingerprint = parsed(json)->fingerprint();
  for (Json& token : json["added_tokens"]) token["normalized"] = true;
  EXPECT_EQ(parsed(json)->fingerprint(), fingerprint);
  json["added_tokens"][0]["normalized"] = false;
  EXPECT_NE(parsed(json)->fingerprint(), fingerprint) << "one kind is matched before the other";
}

TEST(BpeTokenizer, RoundTripsTextAndRandomBytes) {
  const auto tokenizer = parsed(small_tokenizer());
  std::mt19937 random(7);
  std::vector<std::string> texts = testing::sample_documents(20);
  for (int i = 0; i < 200; ++i) texts.push_back(testing::random_bytes(random, random() % 100));
  texts.push_back(std::string(100000, 't') + "\u00e9\u4e2d\U0001F600<|endoftext|>");
  int i = 0;
  for (const std::string& text : texts)
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {.parse_special = i++ % 2 == 0})), text);
}

TEST(BpeTokenizer, TakesAWholePieceWhenItIgnoresMerges) {
  Json json = small_tokenizer();
  json["model"]["vocab"]["cat"] = 262;
  EXPECT_EQ(parsed(json)->encode("cat"), (Ids{'c', 'a', 't'}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(parsed(json)->encode("cat"), Ids{262});
}

TEST(BpeTokenizer, NormalizesWhenTheFileSaysSo) {
  Json json = small_tokenizer();
  EXPECT_EQ(parsed(json)->encode("e\u0301"), (Ids{'e', 0xCC, 0x81}));
  json["normalizer"] = {{"type", "NFC"}};
  EXPECT_EQ(parsed(json)->encode("e\u0301"), (Ids{0xC3, 0xA9}));
}

TEST(BpeTokenizer, SplitsByALiteralString) {
  Json json = small_tokenizer();
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"String", "h."}};
  EXPECT_EQ(parsed(json)->encode("th.e"), (Ids{'t', 'h', '.', 'e'}));
  EXPECT_EQ(parsed(json)->encode("thee"), (Ids{257, 'e'}));
}

TEST(BpeTokenizer, TellsMarkersFromText) {
  const auto tokenizer = parsed(small_tokenizer());
  EXPECT_EQ(tokenizer->eos_id(), kEndOfText);
  EXPECT_EQ(tokenizer->bos_id(), std::nullopt);
  EXPECT_EQ(tokenizer->vocab_size(), 262);
  EXPECT_TRUE(tokenizer->is_special(kEndOfText));
  EXPECT_FALSE(tokenizer->is_special(261));
  EXPECT_EQ(tokenizer->text_nbytes(258), 4);
  EXPECT_EQ(tokenizer->text_nbytes(kEndOfText), 0);
}

TEST(BpeTokenizer, TakesMarkersFromTheConfigBesideIt) {
  TemporaryFolder folder;
  const std::string path = folder.write("tokenizer.json", small_tokenizer().dump());
  folder.write("tokenizer_config.json", R"({"bos_token": null, "eos_token": {"content": "<|endoftext|>>"}})");
  EXPECT_EQ(BpeTokenizer::load(path)->eos_id(), 261);
  folder.write("tokenizer_config.json", R"({"eos_token": "<|missing|>"})");
  EXPECT_THROW(BpeTokenizer::load(path), UsageError);
}

TEST(BpeTokenizer, SavesWhatItLoads) {
  TemporaryFolder folder;
  const auto tokenizer = parsed(small_tokenizer());
  tokenizer->save(folder / "tokenizer.json");
  const auto again = BpeTokenizer::load(folder / "tokenizer.json");
  EXPECT_EQ(again->fingerprint(), tokenizer->fingerprint());
  const EncodeOptions special{.parse_special = true};
  EXPECT_EQ(again->encode("in the thin<|endoftext|>", special), tokenizer->encode("in the thin<|endoftext|>", special));
}

TEST(BpeTokenizer, FingerprintsTheVocabulary) {
  Json json = small_tokenizer();
  json["model"]["merges"] = {"t h", "th e", "i n", "\u0120 the"};
  EXPECT_NE(parsed(json)->fingerprint(), parsed(small_tokenizer())->fingerprint());
}

TEST(BpeTokenizer, EncodesTheSameFromSeveralThreads) {
  const auto tokenizer = parsed(small_tokenizer());
  const std::vector<std::string> documents = testing::sample_documents(50);
  std::vector<Ids> expected;
  for (const std::string& document : documents) expected.push_back(tokenizer->encode(document));
  std::vector<int> wrong(4, 0);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < documents.size(); ++i) wrong[t] += tokenizer->encode(documents[i]) != expected[i];
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(BpeTokenizer, RefusesIdsWithoutAToken) {
  EXPECT_THROW(parsed(small_tokenizer())->token_bytes(262), UsageError);
  EXPECT_THROW(parsed(small_tokenizer())->token_bytes(-1), UsageError);
}

TEST(BpeTokenizer, RefusesAMissingFile) {
  TemporaryFolder folder;
  EXPECT_THROW(BpeTokenizer::load(folder / "tokenizer.json"), EnvironmentError);
}

TEST(BpeTokenizer, SaysWhichPartItDoesNotSupport) {
  const auto with = [](const char* pointer, Json value) {
    Json json = small_tokenizer();
    json[Json::json_pointer(pointer)] = std::move(value);
    return json;
  };
  expect_refused(with("/model/type", "Unigram"), "model.type: is \"Unigram\"");
  expect_refused(with("/model/unk_token", "<unk>"), "model.unk_token: is \"<unk>\"");
  expect_refused(with("/model/byte_fallback", true), "byte_fallback");
  expect_refused(with("/normalizer", {{"type", "Lowercase"}}), "normalizer: is 'Lowercase'");
  const Json lowercase = Json::array({Json{{"type", "NFC"}}, Json{{"type", "Lowercase"}}});
  expect_refused(with("/normalizer", {{"type", "Sequence"}, {"normalizers", lowercase}}),
                 "normalizer.normalizers[1]: is 'Lowercase'");
  expect_refused(with("/normalizer", {{"type", "Sequence"}, {"normalizers", {{{"type", "Sequence"}}}}}),
                 "is a Sequence inside another");
  expect_refused(with("/normalizer", {{"type", "Sequence"}, {"normalizers", 1}}), "normalizers: is 1");
  expect_refused(with("/pre_tokenizer/pretokenizers/0", {{"type", "ByteLevel"}}), "must be the last step");
  expect_refused(with("/decoder", {{"type", "Sequence"}, {"decoders", Json::array()}}), "expected only ByteLevel");
  expect_refused(with("/pre_tokenizer", {{"type", "Metaspace"}}), "pre_tokenizer is 'Metaspace'");
  expect_refused(with("/pre_tokenizer", nullptr), "pre_tokenizer is 'none'");
  expect_refused(with("/pre_tokenizer/pretokenizers/0/behavior", "Removed"), "behavior \"Removed\"");
  expect_refused(with("/decoder", {{"type", "WordPiece"}}), "decoder is 'WordPiece'");
  expect_refused(with("/post_processor", {{"type", "Other"}}), "post_processor: is 'Other'");
}

TEST(BpeTokenizer, SaysWhatIsWrongWithVocabularyAndMerges) {
  const auto with = [](const char* pointer, Json value) {
    Json json = small_tokenizer();
    json[Json::json_pointer(pointer)] = std::move(value);
    return json;
  };
  expect_refused(with("/model/vocab/the", -1), "model.vocab.the: is -1");
  expect_refused(with("/model/vocab/the", 1000000000000), "model.vocab.the: is");
  expect_refused(with("/model/vocab/the", "x"), "model.vocab.the: is");
  expect_refused(with("/model/vocab/the", 256), "is 256, and another token has this id");
  expect_refused(with("/model/merges/1", "th x y"), "model.merges[1]: is \"th x y\"");
  expect_refused(with("/model/merges/1", "th q"), "model.merges[1]: uses 'thq'");
  expect_refused(with("/model/merges/1", "t h"), "model.merges[1]: is in the list twice");
  expect_refused(with("/model/merges/1", 5), "model.merges[1]: is 5");
  expect_refused(with("/added_tokens/1/id", 260), "clash");
  expect_refused(with("/added_tokens/1/id", 12), "disagree about id 12");
  Json json = small_tokenizer();
  json["model"]["vocab"].erase("a");
  expect_refused(json, "no token for byte 97");
  json = small_tokenizer();
  json.erase("model");
  expect_refused(json, "small.json: has no 'model'");
}

TEST(BpeTokenizer, SaysWhereJsonIsMalformed) {
  const std::string text = small_tokenizer().dump();
  try {
    BpeTokenizer::parse(text.substr(0, 100), "cut.json");
    FAIL() << "half a file was accepted";
  } catch (const UsageError& error) {
    EXPECT_NE(std::string(error.what()).find("cut.json:1:101: byte 101: not JSON: "), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tutti
