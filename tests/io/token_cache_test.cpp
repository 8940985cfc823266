#include "tutti/io/token_cache.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tests/io/support/sample_text.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/io/byte_tokenizer.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::read_whole_file;
using testing::TemporaryFolder;

// Counts how often it is asked, so that tests see whether the cache answered.
class CountingTokenizer final : public Tokenizer {
 public:
  explicit CountingTokenizer(uint64_t fingerprint = 1) : fingerprint_(fingerprint) {}
  void encode_into(std::string_view text, std::vector<int32_t>& ids) const override {
    ++calls;
    bytes_.encode_into(text, ids);
  }
  std::string_view token_bytes(int32_t id) const override { return bytes_.token_bytes(id); }
  bool is_special(int32_t id) const override { return bytes_.is_special(id); }
  int64_t vocab_size() const override { return bytes_.vocab_size(); }
  std::optional<int32_t> bos_id() const override { return bytes_.bos_id(); }
  std::optional<int32_t> eos_id() const override { return bytes_.eos_id(); }
  std::string name() const override { return "counting"; }
  uint64_t fingerprint() const override { return fingerprint_; }

  mutable std::atomic<int> calls = 0;

 private:
  ByteTokenizer bytes_;
  uint64_t fingerprint_;
};

class TokenCache : public ::testing::Test {
 protected:
  TokenCorpus open(const Tokenizer& tokenizer) { return open_token_corpus(paths, tokenizer, folder / "cache"); }
  std::string text_of(const TokenCorpus& corpus, int64_t i) { return tokenizer.decode(corpus.document(i)); }
  std::string cache_file() {
    for (const auto& entry : fs::directory_iterator(folder / "cache")) {
      if (entry.path().filename().string().starts_with("tokens-")) return entry.path().string();
    }
    return "";
  }
  int cache_file_count() {
    int count = 0;
    for (const auto& entry : fs::directory_iterator(folder / "cache")) count += entry.path().extension() == ".bin";
    return count;
  }

  TemporaryFolder folder;
  CountingTokenizer tokenizer;
  std::vector<std::string> paths = {folder.write("data/a.txt", "first"), folder.write("data/b.txt", "second one")};
};

TEST_F(TokenCache, TokenizesOnceAndMapsAfterwards) {
  const TokenCorpus made = open(tokenizer);
  EXPECT_EQ(tokenizer.calls, 2);
  const TokenCorpus mapped = open(tokenizer);
  EXPECT_EQ(tokenizer.calls, 2);
  ASSERT_EQ(mapped.document_count(), 2);
  EXPECT_EQ(text_of(mapped, 0), "first");
  EXPECT_EQ(text_of(mapped, 1), "second one");
  EXPECT_EQ(mapped.token_count(), 15);
}

TEST_F(TokenCache, KeepsTokensAliveAfterTheFileIsGone) {
  const TokenCorpus corpus = open(tokenizer);
  fs::remove_all(folder / "cache");
  EXPECT_EQ(text_of(corpus, 1), "second one");
}

TEST_F(TokenCache, WorksWithoutAFolder) {
  const TokenCorpus corpus = open_token_corpus(paths, tokenizer, "");
  EXPECT_EQ(text_of(corpus, 0), "first");
  EXPECT_FALSE(fs::exists(folder / "cache"));
}

TEST_F(TokenCache, TokenizesAnewWhenAFileChanges) {
  open(tokenizer);
  folder.write("data/a.txt", "changed text");
  EXPECT_EQ(text_of(open(tokenizer), 0), "changed text");
}

TEST_F(TokenCache, TokenizesAnewForAnotherTokenizer) {
  open(tokenizer);
  const CountingTokenizer other(2);
  open(other);
  EXPECT_EQ(other.calls, 2);
}

TEST_F(TokenCache, RewritesADamagedOrShortenedFile) {
  open(tokenizer);
  const std::string whole = read_whole_file(cache_file());
  for (size_t i = 0; i < whole.size(); i += 5) {
    std::string damaged = whole;
    if (i % 2 == 0) {
      damaged[i] = static_cast<char>(damaged[i] ^ 0x10);
    } else {
      damaged.resize(i);
    }
    folder.write("cache/" + fs::path(cache_file()).filename().string(), damaged);
    const TokenCorpus corpus = open(tokenizer);
    ASSERT_EQ(text_of(corpus, 0) + "|" + text_of(corpus, 1), "first|second one") << i;
    ASSERT_EQ(read_whole_file(cache_file()), whole);
  }
}

TEST_F(TokenCache, TokenizesOnceForSeveralRanks) {
  std::vector<std::thread> ranks;
  std::atomic<int> right = 0;
  for (int r = 0; r < 4; ++r) {
    ranks.emplace_back([&] { right += open(tokenizer).token_count() == 15; });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(right, 4);
  EXPECT_EQ(tokenizer.calls, 2);
}

TEST_F(TokenCache, KeepsTheNewestEight) {
  for (uint64_t i = 0; i < 12; ++i) open(CountingTokenizer(i));
  EXPECT_EQ(cache_file_count(), 8);
}

TEST_F(TokenCache, NamesAFolderThatCannotBe) {
  try {
    open_token_corpus(paths, tokenizer, folder / "data/a.txt/cache");
    FAIL() << "a folder inside a file was created";
  } catch (const EnvironmentError& error) {
    EXPECT_NE(std::string(error.what()).find("a.txt/cache"), std::string::npos) << error.what();
  }
}

TEST_F(TokenCache, RefusesEmptyData) {
  paths = {folder.write("data/empty.txt", "\n")};
  EXPECT_THROW(open(tokenizer), UsageError);
}

TEST(TokenCorpus, RefusesDocumentsThatAreNotThere) {
  const TokenCorpus corpus = tokenize(std::vector<std::string>{"a"}, ByteTokenizer());
  EXPECT_THROW(corpus.document(1), UsageError);
  EXPECT_THROW(corpus.document(-1), UsageError);
}

}  // namespace
}  // namespace tutti
