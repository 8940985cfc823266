#include "tutti/io/tokenizer_source.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/io/support/sample_text.h"
#include "tests/support/temporary_folder.h"
#include "tutti/core/error.h"
#include "tutti/core/hash.h"
#include "tutti/io/bpe_tokenizer.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

class TokenizerSource : public ::testing::Test {
 protected:
  TokenizerSource() {
    std::string text;
    for (const std::string& document : testing::sample_documents(100)) text += document + "\n\n";
    paths = {folder.write("text.txt", text)};
  }
  std::unique_ptr<Tokenizer> open(const std::string& spec) { return open_tokenizer(spec, paths, folder / "cache"); }
  std::string kept_file() {
    for (const auto& entry : fs::directory_iterator(folder / "cache")) {
      if (entry.path().filename().string().starts_with("tokenizer-")) return entry.path().string();
    }
    return "";
  }

  testing::TemporaryFolder folder;
  std::vector<std::string> paths;
};

TEST_F(TokenizerSource, KnowsTheByteTokenizer) { EXPECT_EQ(open("byte")->name(), "byte"); }

TEST_F(TokenizerSource, LearnsAndKeepsAVocabulary) {
  const auto learned = open("bpe:300");
  EXPECT_EQ(learned->vocab_size(), 300);
  const std::string written = testing::read_whole_file(kept_file());
  EXPECT_EQ(open("bpe:300")->fingerprint(), learned->fingerprint());
  EXPECT_EQ(testing::read_whole_file(kept_file()), written);
}

// The names of cache files are hashes.
TEST_F(TokenizerSource, DoesNotTakeOneVocabularyForAnotherOfTheSameName) {
  const CollidingHashesForTests colliding;
  for (int round = 0; round < 2; ++round) {
    for (const int64_t size : {300, 301, 310}) EXPECT_EQ(open("bpe:" + std::to_string(size))->vocab_size(), size);
  }
}

TEST_F(TokenizerSource, LearnsTheSameWithoutACache) {
  EXPECT_EQ(open_tokenizer("bpe:300", paths, "")->fingerprint(), open("bpe:300")->fingerprint());
}

TEST_F(TokenizerSource, LearnsAnewWhenTheKeptFileIsDamaged) {
  const auto learned = open("bpe:300");
  const std::string path = kept_file(), whole = testing::read_whole_file(path);
  fs::resize_file(path, fs::file_size(path) / 2);
  EXPECT_EQ(open("bpe:300")->fingerprint(), learned->fingerprint());
  EXPECT_EQ(testing::read_whole_file(path), whole);
}

TEST_F(TokenizerSource, LoadsAFileOrTheFolderItIsIn) {
  const auto learned = open("bpe:300");
  fs::create_directory(folder / "saved");
  dynamic_cast<const BpeTokenizer&>(*learned).save(folder / "saved/tokenizer.json");
  EXPECT_EQ(open(folder / "saved")->vocab_size(), 300);
  EXPECT_EQ(open(folder / "saved/tokenizer.json")->vocab_size(), 300);
}

TEST_F(TokenizerSource, ListsWhatItKnows) {
  for (const char* spec : {"bpe", "absent.json", "bpe:", "bpe:many", "bpe:300x", "bpe:12"}) {
    EXPECT_THROW(open(spec), UsageError) << spec;
  }
}

}  // namespace
}  // namespace tutti
