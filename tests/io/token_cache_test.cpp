#include "tutti/io/token_cache.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/io/support/sample_text.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
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
  void encode_into(std::string_view text, std::vector<int32_t>& ids, const EncodeOptions& options) const override {
    ++calls;
    bytes_.encode_into(text, ids, options);
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

// As `rsync --times --inplace` and editors that keep times leave it.
TEST_F(TokenCache, TokenizesAnewWhenAFileChangesInPlaceAndItsTimeIsPutBack) {
  const auto change_time = [&] {
    struct stat status{};
    EXPECT_EQ(stat(paths[0].c_str(), &status), 0);
    return std::pair(status.st_ctim.tv_sec, status.st_ctim.tv_nsec);
  };
  open(tokenizer);
  const auto written = fs::last_write_time(paths[0]);
  const auto changed = change_time();
  while (change_time() == changed) {  // the system counts such times in steps of some milliseconds
    std::fstream(paths[0], std::ios::in | std::ios::out) << "First";
    fs::last_write_time(paths[0], written);
  }
  EXPECT_EQ(text_of(open(tokenizer), 0), "First");
}

TEST_F(TokenCache, TokenizesAnewForAnotherTokenizer) {
  open(tokenizer);
  const CountingTokenizer other(2);
  open(other);
  EXPECT_EQ(other.calls, 2);
}

// The names of cache files are hashes.
TEST_F(TokenCache, IsNotTakenForThatOfOtherDataOfTheSameName) {
  const CollidingHashesForTests colliding;
  const std::vector<std::string> others = {folder.write("data/c.txt", "third"),
                                           folder.write("data/d.txt", "fourth one")};
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(text_of(open(tokenizer), 0), "first");
    EXPECT_EQ(text_of(open_token_corpus(others, tokenizer, folder / "cache"), 0), "third");
    EXPECT_EQ(text_of(open_token_corpus(std::vector{paths[0], others[1]}, tokenizer, folder / "cache"), 1),
              "fourth one");
    EXPECT_EQ(open_token_corpus(paths, tokenizer, folder / "cache", {.section_nbytes = 64}).document_count(), 2);
  }
  EXPECT_EQ(cache_file_count(), 1);
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

TEST_F(TokenCache, GoesOnWithoutAFolderThatCannotBe) {
  ::testing::internal::CaptureStderr();
  const TokenCorpus corpus = open_token_corpus(paths, tokenizer, folder / "data/a.txt/cache");
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("a.txt/cache is not used"), std::string::npos);
  EXPECT_EQ(text_of(corpus, 1), "second one");
}

// A file with a right checksum is not yet one that may be read: whoever can write it can compute that too.
TEST_F(TokenCache, TokenizesAnewWhereAForgedFileLeadsOutside) {
  open(tokenizer);
  const std::string name = "cache/" + fs::path(cache_file()).filename().string(), whole = read_whole_file(cache_file());
  constexpr size_t kHeader = 80, kLabelNbytes = 16, kChecksum = 40, kCounts = 48, kOffsets = 3 * 8;  // two documents
  const auto forge = [&](size_t at, auto value) {
    std::string bytes = whole;
    std::memcpy(bytes.data() + kHeader + at, &value, sizeof value);
    uint64_t label_nbytes = 0;
    std::memcpy(&label_nbytes, bytes.data() + kLabelNbytes, sizeof label_nbytes);
    const std::string_view body = std::string_view(bytes).substr(kHeader),
                           label = body.substr(body.size() - label_nbytes);
    const std::string_view tokens = body.substr(kOffsets, body.size() - label_nbytes - kOffsets);
    const uint64_t checksum =
        hash64(label, hash64(tokens, hash64(body.substr(0, kOffsets),
                                            hash64(std::string_view(bytes).substr(kCounts, kHeader - kCounts)))));
    std::memcpy(bytes.data() + kChecksum, &checksum, sizeof checksum);
    return bytes;
  };
  ASSERT_EQ(forge(0, int64_t{0}), whole) << "the format of the file is another one";
  std::vector<std::string> forged;
  for (const int64_t offset :
       {int64_t{-1}, int64_t{1}, int64_t{14}, int64_t{16}, int64_t{1} << 40, INT64_MIN, INT64_MAX}) {
    for (size_t document = 0; document <= 2; ++document) {
      if (document != 1 || offset < 0 || offset > 15) forged.push_back(forge(document * 8, offset));
    }
  }
  for (const int32_t id : {-1, static_cast<int>(tokenizer.vocab_size()), INT32_MIN, INT32_MAX})
    forged.push_back(forge(kOffsets + 20, id));
  for (size_t i = 0; i < forged.size(); ++i) {
    folder.write(name, forged[i]);
    const TokenCorpus corpus = open(tokenizer);
    ASSERT_EQ(text_of(corpus, 0) + "|" + text_of(corpus, 1), "first|second one") << i;
    ASSERT_EQ(read_whole_file(cache_file()), whole) << i;
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
