// Damaged input of every text format either reads or raises one of Tutti's errors, whatever the damage.
#include <gtest/gtest.h>

#include "tests/io/support/gzip_writer.h"
#include "tests/io/support/sample_text.h"
#include "tests/support/fuzz_rounds.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/bpe_trainer.h"
#include "tutti/io/click_reader.h"
#include "tutti/io/generated_clicks.h"
#include "tutti/io/gzip.h"
#include "tutti/io/text_source.h"

namespace tutti {
namespace {

using testing::mutated;

constexpr uint32_t kSeed = 20240611;

// Runs `read` and tells whether it accepted; lets everything but Tutti's own errors through to fail the test.
template <class Read>
bool accepts(const Read& read) {
  try {
    read();
    return true;
  } catch (const InternalError&) {
    throw;
  } catch (const Error&) {
    return false;
  }
}

TEST(TextFormatsFuzz, TokenizerJsonLoadsOrRaises) {
  const std::string whole = BpeTokenizer(train_bpe(testing::sample_documents(20), {.vocab_size = 280})).to_json();
  std::mt19937 random(kSeed);
  int refused = 0;
  for (int i = 0; i < 1500; ++i) {
    const std::string damaged = mutated(whole, random);
    refused += !accepts([&] {
      const auto tokenizer = BpeTokenizer::parse(damaged, "damaged.json");
      const std::string text = "the lark \xff sings<|endoftext|>";
      if (tokenizer->model().prefix_space_after) return;
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, {.parse_special = i % 2 == 0})), text) << i;
    });
  }
  EXPECT_GT(refused, 500);
}

TEST(TextFormatsFuzz, TokenizerJsonWithOtherTypesOfValuesRaises) {
  // Structural damage: each mutation replaces a value by one of another type somewhere in the head of the file, where
  // the options stand.
  const std::string whole = BpeTokenizer(train_bpe(testing::sample_documents(5), {.vocab_size = 262})).to_json();
  static const char* const kValues[] = {"null", "true", "-1", "1e300", "\"\"", "[]", "{}", "[[[]]]", "{\"type\": 7}"};
  std::mt19937 random(kSeed);
  for (int i = 0; i < 1500; ++i) {
    std::string damaged = whole;
    const size_t colon = damaged.find(':', random() % damaged.size());
    if (colon == std::string::npos) continue;
    const size_t end = damaged.find_first_of(",\n", colon);
    damaged.replace(colon + 1, end - colon - 1, kValues[random() % std::size(kValues)]);
    accepts([&] { BpeTokenizer::parse(damaged, "damaged.json")->encode("the lark"); });
  }
}

// All rows of a damaged file are legal or an error, and so is any position in it.
TEST(TextFormatsFuzz, ClicksAreReadOrRaise) {
  const testing::TemporaryFolder folder;
  const GeneratedClicks clicks(criteo_columns({5, 1000}));
  clicks.write_csv(folder / "a.csv", 0, 12);
  clicks.write_npy(folder / "npy", 0, 12);
  std::mt19937 random(kSeed);
  int refused = 0;
  for (testing::FuzzRounds rounds(3000); rounds.go_on();) {
    const bool is_text = rounds.index() % 2 == 0;
    const char* const name = is_text ? "a.csv" : rounds.index() % 4 == 1 ? "npy/categories.npy" : "npy/label.npy";
    const std::string whole = testing::read_whole_file(folder / name);
    folder.write(name, mutated(whole, random));
    refused += !accepts([&] {
      ClickReader reader({folder / (is_text ? "a.csv" : "npy")}, clicks.columns(), {.repeats = false});
      for (ClickRows rows; (rows = reader.read(5)).count() > 0;)
        for (int64_t i = 0; i < 2 * rows.count(); ++i)
          ASSERT_LT(static_cast<uint64_t>(rows.categories.data<int64_t>()[i]), i % 2 == 0 ? 5u : 1000u);
      const auto number = [&] { return static_cast<int64_t>(random() % 400) - 5; };
      reader.seek({.file = 0, .place = {number(), is_text ? number() : 0, is_text ? number() : 0}});
      reader.skip(3);
    });
    folder.write(name, whole);
  }
  EXPECT_GT(refused, 1000);
}

TEST(TextFormatsFuzz, TokenizerConfigLoadsOrRaises) {
  testing::TemporaryFolder folder;
  const BpeTokenizer tokenizer(train_bpe(testing::sample_documents(5), {.vocab_size = 262}));
  const std::string whole = R"({"bos_token": null, "eos_token": {"content": "<|endoftext|>"}})";
  std::mt19937 random(kSeed);
  const std::string json = tokenizer.to_json();
  for (int i = 0; i < 500; ++i) {
    accepts([&] { io::parse_tokenizer_json(json, mutated(whole, random), "damaged"); });
  }
}

TEST(TextFormatsFuzz, GzipExpandsOrRaises) {
  std::string text;
  for (const std::string& document : testing::sample_documents(20)) text += document;
  const std::string whole = testing::gzip_of(text);
  std::mt19937 random(kSeed);
  for (int i = 0; i < 3000; ++i) {
    const std::string damaged = mutated(whole, random);
    accepts([&] {
      // A change that gzip does not protect (its header) may pass; the text itself is under a checksum.
      EXPECT_EQ(gunzip(std::as_bytes(std::span(damaged)), "damaged.gz", 1 << 20), text) << i;
    });
  }
}

TEST(TextFormatsFuzz, TextFilesReadOrRaise) {
  testing::TemporaryFolder folder;
  std::string lines, dict;
  for (const std::string& document : testing::sample_documents(20)) {
    std::string escaped;
    for (const char c : document) escaped += c == '\n' ? std::string("\\n") : std::string(1, c);
    lines += "{\"text\": \"" + escaped + "\", \"n\": [1, 2.5e3, null]}\n";
    dict += "head\n   " + document + "\n\n";
  }
  std::mt19937 random(kSeed);
  for (int i = 0; i < 500; ++i) {
    for (const auto& [name, whole] : {std::pair<const char*, std::string>{"a.jsonl", lines}, {"a.dict", dict}}) {
      const std::vector<std::string> paths = {folder.write(name, mutated(whole, random))};
      accepts([&] { read_documents(paths); });
    }
  }
}

TEST(TextFormatsFuzz, DeeplyNestedJsonRaises) {
  testing::TemporaryFolder folder;
  for (const char* open : {"[", "{\"a\":"}) {
    std::string deep;
    for (int i = 0; i < 200000; ++i) deep += open;
    EXPECT_FALSE(accepts([&] { BpeTokenizer::parse(deep, "deep.json"); }));
    const std::vector<std::string> paths = {folder.write("deep.jsonl", deep)};
    EXPECT_FALSE(accepts([&] { read_documents(paths); }));
  }
}

}  // namespace
}  // namespace tutti
