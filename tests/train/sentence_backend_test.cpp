// An encoder behind the HTTP interface, asked by many threads.
#include "tutti/train/sentence_backend.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/support/temporary_folder.h"
#include "tests/train/support/published_folders.h"
#include "tutti/core/error.h"
#include "tutti/generate/serve/api_error.h"

namespace tutti::train {
namespace {

using generate::serve::Embeddings;
using generate::serve::Prompt;

const auto kWanted = [] {};

struct Encoder {
  Encoder() { write_encoder_folder(folder.path()); }
  const tutti::testing::TemporaryFolder folder;
};

TEST(SentenceBackend, GivesEachThreadTheVectorsOfItsTexts) {
  const Encoder encoder;
  const SentenceModel model(encoder.folder.path());
  SentenceBackend backend(model);
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::vector<Prompt> texts;
      int64_t tokens = 0;
      for (int i = 0; i < 12; ++i) {
        const std::string text(static_cast<size_t>(1 + 7 * i + t), static_cast<char>('a' + i));
        tokens += std::ssize(model.encode(text));
        if (i % 3 == 0) texts.emplace_back(model.encode(text));
        else texts.emplace_back(text);
      }
      const Embeddings all = backend.embed(texts, kWanted);
      EXPECT_EQ(all.tokens, tokens);
      ASSERT_EQ(all.vectors.size(), texts.size());
      for (size_t i = 0; i < texts.size(); ++i) {
        const std::vector<Prompt> alone{texts[i]};
        EXPECT_EQ(backend.embed(alone, kWanted).vectors[0], all.vectors[i]);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(backend.metrics()[0].value, 4 * 24);
  EXPECT_EQ(backend.embed({Prompt("a text")}, kWanted).vectors[0], model.embed("a text"));
}

TEST(SentenceBackend, EndsAListThatIsNoLongerWanted) {
  const Encoder encoder;
  const SentenceModel model(encoder.folder.path());
  SentenceBackend backend(model);
  int left = 3;
  const auto check_wanted = [&] {
    if (left-- == 0) throw generate::serve::client_left();
  };
  EXPECT_THROW(backend.embed(std::vector<Prompt>(1000, Prompt("a")), check_wanted), generate::serve::ApiError);
  EXPECT_EQ(backend.metrics()[0].value, 3);
  EXPECT_EQ(backend.embed({Prompt("b")}, kWanted).vectors[0], model.embed("b"));
}

// A text that fails gives its turn to the next one.
TEST(SentenceBackend, RefusesWhatTheModelDoesNotTake) {
  const Encoder encoder;
  const SentenceModel model(encoder.folder.path());
  SentenceBackend backend(model);
  try {
    backend.embed({Prompt("a"), Prompt(std::vector<int32_t>{})}, kWanted);
    ADD_FAILURE() << "a text without tokens is embedded";
  } catch (const generate::serve::ApiError& error) {
    EXPECT_EQ(error.status(), 400);
    EXPECT_STREQ(error.what(), "input[1]: embedding of 0 tokens; expected 1 to 64");
  }
  EXPECT_THROW(backend.submit({}, {}), generate::serve::ApiError);
  EXPECT_EQ(backend.embed({Prompt("a")}, kWanted).vectors[0], model.embed("a"));
  const generate::serve::ServedModel served = served_sentences(model);
  EXPECT_EQ(served.name, std::filesystem::path(encoder.folder.path()).filename());
  EXPECT_EQ(served.context, 64);
  EXPECT_FALSE(served.writes_texts);
  EXPECT_TRUE(is_sentence_model(encoder.folder.path()));
  EXPECT_FALSE(is_sentence_model(encoder.folder / "config.json"));
}

}  // namespace
}  // namespace tutti::train
