// Published models in use: two from one folder, a frozen one that is loaded again, two threads, and one after an error.
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tests/train/support/published_folders.h"
#include "tutti/autograd/backward.h"
#include "tutti/core/error.h"
#include "tutti/models/decoder.h"
#include "tutti/models/published_model.h"
#include "tutti/ops/reduction.h"
#include "tutti/optim/optimizer.h"
#include "tutti/train/data/batch.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/score_text.h"
#include "tutti/train/sentence_model.h"

namespace tutti::train {
namespace {

using tutti::testing::TemporaryFolder;

const std::vector<int32_t> kTokens{3, 1, 4, 1, 5, 9, 2, 6};

TEST(PublishedUse, AModelThatTrainsLeavesTheFrozenOneOfItsFileAlone) {
  const TemporaryFolder folder;
  write_decoder_folder(folder.path());
  const models::PublishedModel published(folder.path());
  models::Decoder frozen(published.config(), 64), trained(published.config(), 64);
  published.load(frozen, {.freeze = true});
  published.load(trained);
  const std::vector<float> before = token_log_probabilities(frozen, kTokens, 16);
  EXPECT_EQ(token_log_probabilities(trained, kTokens, 16), before);
  const auto step = [](models::Decoder& model) {
    const auto optimizer = optim::make_adamw(model.named_parameters(), {.lr = 1e-2});
    const TokenRows rows{1, 4, {3, 1, 4, 1}, {1, 4, 1, 5}, {0, 1, 2, 3}};
    backward(sum(model.losses(to_batch(rows), labels_of(rows))));
    optimizer->step();
  };
  step(trained);
  EXPECT_NE(token_log_probabilities(trained, kTokens, 16), before);
  EXPECT_EQ(token_log_probabilities(frozen, kTokens, 16), before);
  // Loaded again it has memory of its own, and trains as the other did.
  published.load(frozen);
  EXPECT_EQ(token_log_probabilities(frozen, kTokens, 16), before);
  step(frozen);
  EXPECT_EQ(token_log_probabilities(frozen, kTokens, 16), token_log_probabilities(trained, kTokens, 16));
  published.load(frozen, {.freeze = true});
  EXPECT_EQ(token_log_probabilities(frozen, kTokens, 16), before);
}

TEST(PublishedUse, AFrozenModelThatBecomesBf16IsTheOneOfTheSameDtype) {
  const TemporaryFolder folder;
  write_decoder_folder(folder.path());
  const models::PublishedModel published(folder.path());
  models::Decoder before(published.config(), 64), after(published.config(), 64);
  before.to(DType::bf16);
  published.load(before, {.freeze = true});
  published.load(after, {.freeze = true});
  const std::vector<float> in_f32 = token_log_probabilities(after, kTokens, 16);
  after.to(DType::bf16);
  EXPECT_EQ(token_log_probabilities(after, kTokens, 16), token_log_probabilities(before, kTokens, 16));
  after.to(DType::f32);
  EXPECT_EQ(token_log_probabilities(after, kTokens, 16), in_f32);
}

TEST(PublishedUse, AFileThatDoesNotFitLeavesTheModelAsItWas) {
  const TemporaryFolder folder, other;
  write_decoder_folder(folder.path());
  write_decoder_folder(other.path(), "tiny-tp4");
  const models::PublishedModel published(folder.path()), wrong(other.path());
  models::Decoder model(published.config(), 64);
  published.load(model, {.freeze = true});
  const std::vector<float> before = token_log_probabilities(model, kTokens, 16);
  EXPECT_NE(message_of([&] { wrong.load(model, {.freeze = true}); }).find("model.embed_tokens.weight"),
            std::string::npos);
  EXPECT_EQ(token_log_probabilities(model, kTokens, 16), before);
}

TEST(SentenceModels, GiveTheSameFromTwoThreads) {
  const TemporaryFolder folder;
  write_encoder_folder(folder.path());
  const SentenceModel model(folder.path());
  const std::vector<std::string> texts{"a text", "", "another text", "a", "numbers 1 2 3"};
  std::vector<std::vector<float>> alone, got[2];
  for (const std::string& text : texts) alone.push_back(SentenceModel(folder.path()).embed(text));
  {
    std::vector<std::jthread> threads;
    for (auto& mine : got) {
      threads.emplace_back([&] {
        for (const std::string& text : texts) mine.push_back(model.embed(text));
      });
    }
  }
  for (const auto& mine : got) EXPECT_EQ(mine, alone);
}

TEST(SentenceModels, CutLongTextsAndRefuseOtherPoolings) {
  const TemporaryFolder folder;
  write_encoder_folder(folder.path());
  const std::string text = "a text that is longer than the model has positions, and longer, and longer still";
  folder.write("sentence_bert_config.json", R"({"max_seq_length": 5})");
  const std::vector<int32_t> ids = SentenceModel(folder.path()).encode(text);
  ASSERT_EQ(ids.size(), 5u);
  EXPECT_EQ(ids.back(), SentenceModel(folder.path()).encode("").back()) << "the frame ends as it does";
  folder.write("sentence_bert_config.json", R"({"max_seq_length": 5000})");
  EXPECT_NE(message_of([&] { SentenceModel model(folder.path()); }).find("max_seq_length is 5000; expected 2 to 64"),
            std::string::npos);
  folder.write("sentence_bert_config.json", "{}");
  std::filesystem::create_directory(folder / "1_Pooling");
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Transformer", "path": ""},
                                   {"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}])");
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": true, "pooling_mode_cls_token": false})");
  EXPECT_EQ(message_of([&] { SentenceModel model(folder.path()); }), "no error");
  folder.write("1_Pooling/config.json", R"({"pooling_mode_mean_tokens": false, "pooling_mode_cls_token": true})");
  EXPECT_NE(message_of([&] { SentenceModel model(folder.path()); }).find("only the mean over tokens is computed here"),
            std::string::npos);
  folder.write("modules.json", R"([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])");
  EXPECT_NE(message_of([&] { SentenceModel model(folder.path()); }).find("models.Dense"), std::string::npos);
  EXPECT_NE(message_of([&] { SentenceModel model(folder / "nothing"); }).find("nothing is no folder"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::train
