// BERT against transformers and an independent float64 forward (tests/models/families/README.md).
#include "tutti/models/bert.h"

#include <gtest/gtest.h>

#include "tests/models/support/family_cases.h"
#include "tests/support/message_of.h"
#include "tests/support/temporary_folder.h"
#include "tutti/autograd/backward.h"
#include "tutti/nn/state_dict.h"
#include "tutti/ops.h"

namespace tutti::models {
namespace {

class BertCase : public ::testing::Test {
 protected:
  BertCase()
      : file((families_folder() / "bert" / "expected.safetensors").string()),
        model(read_bert_config((families_folder() / "bert" / "config.json").string())),
        tokens(file.tensor("tokens")),
        types(file.tensor("types")),
        lengths(cast(sum(file.tensor("mask"), 1), DType::i32)) {
    load_published_bert(model, families_folder() / "bert");
  }
  const SafetensorsFile file;
  Bert model;
  const Tensor tokens, types, lengths;
};

// The states of padding mean nothing.
Tensor without_padding(const Tensor& states, const Tensor& mask) {
  return mul(states, cast(reshape(mask, {mask.size(0), mask.size(1), 1}), DType::f32));
}

TEST_F(BertCase, HasTheStatesAndEmbeddingsOfTheFormulasAndOfTransformers) {
  const Tensor states = model.forward(tokens, types, lengths), mask = file.tensor("mask");
  for (const char* name : {"hidden", "hidden_float64"})
    EXPECT_LT(difference(without_padding(states, mask), without_padding(file.tensor(name), mask)), 1e-5) << name;
  for (const char* name : {"embeddings", "embeddings_float64"})
    EXPECT_LT(difference(sentence_embeddings(states, lengths), file.tensor(name)), 1e-5) << name;
}

TEST_F(BertCase, HasTheGradientsOfTransformers) {
  const Tensor embeddings = sentence_embeddings(model.forward(tokens, types, lengths), lengths);
  const Tensor loss = sum(mul(embeddings, file.tensor("probe")));
  EXPECT_LT(difference(loss, file.tensor("loss")), 1e-5);
  backward(loss);
  for (const nn::NamedParameter& p : model.named_parameters()) {
    const Tensor gradient = p.parameter.grad();
    if (p.name.ends_with("key.bias")) {
      // It moves all scores of a query alike, which softmax does not see.
      EXPECT_LT(amax(abs(gradient)).data<float>()[0], 1e-6) << p.name;
      continue;
    }
    EXPECT_LT(difference(gradient, file.tensor("gradient." + p.name)), 1e-4) << p.name;
  }
}

TEST_F(BertCase, ARowsEmbeddingDoesNotDependOnTheOthers) {
  const Tensor all = sentence_embeddings(model.forward(tokens, types, lengths), lengths);
  for (int64_t row = 0; row < tokens.extent(0); ++row) {
    const int64_t length = lengths.data<int32_t>()[row];
    const auto own = [&](const Tensor& t) { return to_contiguous(slice(slice(t, 0, row, row + 1), 1, 0, length)); };
    const Tensor only = Tensor::of<int32_t>({static_cast<int32_t>(length)});
    const Tensor alone = sentence_embeddings(model.forward(own(tokens), own(types), only), only);
    EXPECT_EQ(difference(alone, slice(all, 0, row, row + 1)), 0) << row;
  }
}

TEST_F(BertCase, LoadsUnderOldNames) {
  const tutti::testing::TemporaryFolder folder;
  nn::StateDict old{{"bert.embeddings.position_ids", Tensor::of<int64_t>({0, 1})},
                    {"bert.pooler.dense.bias", Tensor::of<float>({1})}};
  for (const auto& [name, value] : model.state_dict()) {
    std::string published = "bert." + name;
    if (const size_t at = published.find("LayerNorm.weight"); at != std::string::npos)
      published.replace(at + 10, 6, "gamma");
    if (const size_t at = published.find("LayerNorm.bias"); at != std::string::npos)
      published.replace(at + 10, 4, "beta");
    old.emplace_back(published, value);
  }
  nn::save_published(old, folder / "model.safetensors");
  Bert again(model.config());
  load_published_bert(again, folder.path());
  const nn::StateDict got = again.state_dict(), expected = model.state_dict();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(difference(got[i].second, expected[i].second), 0) << got[i].first;
}

TEST(Bert, CountsItsParametersAndRefusesWhatItDoesNotCompute) {
  const BertConfig minilm{.dim = 384, .layers = 6, .heads = 12, .ffn_dim = 1536, .vocab = 30522};
  EXPECT_EQ(parameter_count(minilm), 22'565'376);  // 22,713,216 with the pooler, which embeddings do not use
  EXPECT_EQ(Bert(minilm).parameter_count(), 22'565'376);
  EXPECT_NE(message_of([&] {
              Bert({.dim = 10, .layers = 1, .heads = 3, .ffn_dim = 4, .vocab = 5});
            }).find("3 heads do not divide the model dim 10"),
            std::string::npos);
  const tutti::testing::TemporaryFolder folder;
  const std::string file = folder.write(
      "config.json",
      R"({"model_type": "bert", "hidden_act": "relu", "position_embedding_type": "relative_key", "is_decoder": true})");
  const std::string message = message_of([&] { read_bert_config(file); });
  for (const char* part : {"hidden_act: \"relu\"", "position_embedding_type: \"relative_key\"", "is_decoder: true"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

}  // namespace
}  // namespace tutti::models
