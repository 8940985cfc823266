#include "tutti/io/bpe_trainer.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/io/support/sample_text.h"
#include "tutti/core/error.h"
#include "tutti/io/bpe_tokenizer.h"
#include "tutti/io/regex_split.h"

namespace tutti {
namespace {

using Documents = std::vector<std::string>;

std::string text_of(const BpeModel& model, const io::BpeMerge& merge) {
  return *model.vocab[static_cast<size_t>(merge.left)] + "+" + *model.vocab[static_cast<size_t>(merge.right)];
}

std::vector<std::string> merges_of(const BpeModel& model) {
  std::vector<std::string> merges;
  for (const io::BpeMerge& merge : model.merges) merges.push_back(text_of(model, merge));
  return merges;
}

// The definition: count all pairs of all words anew before each merge.
std::vector<std::string> slow_merges(const Documents& documents, size_t count) {
  const io::RegexSplitter splitter(io::kQwenSplitPattern);
  const BpeModel bytes = train_bpe(documents, {.vocab_size = 257});
  std::vector<std::vector<int32_t>> words;
  for (const std::string& document : documents) {
    std::vector<size_t> ends;
    splitter.split(document, 0, ends);
    size_t begin = 0;
    for (const size_t end : ends) {
      words.emplace_back();
      for (; begin < end; ++begin) words.back().push_back(bytes.bytes.ids[static_cast<unsigned char>(document[begin])]);
    }
  }
  std::vector<std::string> tokens;
  for (int id = 0; id < 256; ++id) tokens.push_back(*bytes.vocab[static_cast<size_t>(id)]);
  std::vector<std::string> merges;
  while (merges.size() < count) {
    std::map<std::pair<int32_t, int32_t>, int64_t> counts;
    for (const auto& word : words) {
      for (size_t i = 0; i + 1 < word.size(); ++i) ++counts[{word[i], word[i + 1]}];
    }
    auto best = counts.begin();
    for (auto it = counts.begin(); it != counts.end(); ++it) {
      if (it->second > best->second) best = it;
    }
    const auto [left, right] = best->first;
    merges.push_back(tokens[left] + "+" + tokens[right]);
    const int32_t result = static_cast<int32_t>(tokens.size());
    tokens.push_back(tokens[left] + tokens[right]);
    for (auto& word : words) {
      std::vector<int32_t> merged;
      for (size_t i = 0; i < word.size(); ++i) {
        const bool here = i + 1 < word.size() && word[i] == left && word[i + 1] == right;
        merged.push_back(here ? result : word[i]);
        i += here;
      }
      word = merged;
    }
  }
  return merges;
}

TEST(BpeTrainer, MergesTheMostFrequentPairFirst) {
  const BpeModel model = train_bpe(Documents{"abab abab cd"}, {.vocab_size = 259});
  EXPECT_EQ(merges_of(model), (std::vector<std::string>{"a+b", "ab+ab"}));
}

TEST(BpeTrainer, BreaksTiesByTheSmallerIds) {
  const BpeModel model = train_bpe(Documents{"dc", "ba", "dc", "ba"}, {.vocab_size = 259});
  EXPECT_EQ(merges_of(model), (std::vector<std::string>{"b+a", "d+c"}));
}

TEST(BpeTrainer, AgreesWithCountingAnewBeforeEachMerge) {
  Documents documents = testing::sample_documents(30);
  documents.push_back("aaaa aaa aaaaaaa aaaaaaaaaa abababab");
  const std::vector<std::string> fast = merges_of(train_bpe(documents, {.vocab_size = 257 + 100}));
  EXPECT_EQ(fast, slow_merges(documents, fast.size()));
}

TEST(BpeTrainer, StopsWhenNoPairIsFrequentEnough) {
  const BpeModel model = train_bpe(Documents{"abc"}, {.vocab_size = 1000});
  EXPECT_TRUE(model.merges.empty());
  EXPECT_EQ(train_bpe(Documents{"abc"}, {.vocab_size = 1000, .min_count = 1}).merges.size(), 2u);
}

TEST(BpeTrainer, FillsTheVocabularyAskedForAndEndsItWithEos) {
  const BpeTokenizer tokenizer(train_bpe(testing::sample_documents(100), {.vocab_size = 300}));
  EXPECT_EQ(tokenizer.vocab_size(), 300);
  EXPECT_EQ(tokenizer.eos_id(), 299);
  EXPECT_EQ(tokenizer.token_bytes(299), "<|endoftext|>");
}

TEST(BpeTrainer, NeedsFewerTokensThanBytes) {
  const Documents documents = testing::sample_documents(100);
  const BpeTokenizer tokenizer(train_bpe(documents, {.vocab_size = 400}));
  EXPECT_LT(tokenizer.encode(documents[0]).size() * 3, documents[0].size());
}

TEST(BpeTrainer, MakesATokenizerThatRoundTripsAnyBytes) {
  const BpeTokenizer tokenizer(train_bpe(testing::sample_documents(50), {.vocab_size = 350}));
  std::mt19937 random(11);
  Documents texts = testing::sample_documents(20, 99);
  for (int i = 0; i < 200; ++i) texts.push_back(testing::random_bytes(random, random() % 100));
  for (const std::string& text : texts) EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
}

TEST(BpeTrainer, SavesATokenizerThatLoadsEqual) {
  const BpeTokenizer tokenizer(train_bpe(testing::sample_documents(50), {.vocab_size = 350}));
  EXPECT_EQ(BpeTokenizer::parse(tokenizer.to_json(), "trained")->fingerprint(), tokenizer.fingerprint());
}

TEST(BpeTrainer, GivesTheSameVocabularyEachTime) {
  const Documents documents = testing::sample_documents(50);
  EXPECT_EQ(BpeTokenizer(train_bpe(documents, {.vocab_size = 400})).fingerprint(),
            BpeTokenizer(train_bpe(documents, {.vocab_size = 400})).fingerprint());
}

TEST(BpeTrainer, SamplesEvenlyFromFirstToLast) {
  // 64 documents of 1000 bytes, each with a letter pair of its own; a quarter is looked at.
  Documents documents;
  for (int i = 0; i < 64; ++i) {
    std::string text;
    while (text.size() < 1000) text += std::string{' ', static_cast<char>('A' + i / 8), static_cast<char>('a' + i % 8)};
    documents.push_back(text.substr(0, 1000));
  }
  const BpeModel model = train_bpe(documents, {.vocab_size = 400, .sample_nbytes = 16000});
  std::map<char, int> pairs_by_capital;
  for (const std::string& merge : merges_of(model)) {
    if (merge.size() == 4 && merge[0] == ' ' && merge[2] == '+') ++pairs_by_capital[merge[1]];
  }
  ASSERT_EQ(pairs_by_capital.size(), 8u);
  for (const auto& [capital, pairs] : pairs_by_capital) EXPECT_EQ(pairs, 2) << capital;
}

TEST(BpeTrainer, RefusesImpossibleRequests) {
  EXPECT_THROW(train_bpe(Documents{"text"}, {.vocab_size = 256}), UsageError);
  EXPECT_THROW(train_bpe(Documents{}, {}), UsageError);
  EXPECT_THROW(train_bpe(Documents{""}, {}), UsageError);
  EXPECT_THROW(train_bpe(Documents{"text"}, {.sample_nbytes = 0}), UsageError);
  EXPECT_THROW(train_bpe(Documents{"text"}, {.eos_token = ""}), UsageError);
}

}  // namespace
}  // namespace tutti
