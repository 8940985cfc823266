// Tiny models of published families, as transformers saves them, compute what transformers and an independent float64
// forward do (tests/models/families/README.md).
#include "tutti/models/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "tests/models/support/family_cases.h"
#include "tutti/autograd/backward.h"
#include "tutti/models/decoder.h"
#include "tutti/models/published_model.h"
#include "tutti/nn/published_experts.h"
#include "tutti/ops.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

class PublishedFamilies : public ::testing::TestWithParam<std::string> {
 protected:
  fs::path folder() const { return families_folder() / GetParam(); }
  SafetensorsFile expected() const { return SafetensorsFile((folder() / "expected.safetensors").string()); }
  std::unique_ptr<Decoder> loaded(const char* config) const {
    auto model = std::make_unique<Decoder>(read_published_config((folder() / config).string()), kFamilyPositions);
    load_published(*model, folder());
    return model;
  }
};
INSTANTIATE_TEST_SUITE_P(, PublishedFamilies, ::testing::ValuesIn(family_cases("config.json")), name_of_case);

TEST_P(PublishedFamilies, HaveTheLogitsOfTheFormulasAndOfTransformers) {
  const SafetensorsFile file = expected();
  const TokenBatch batch = batch_in(file);
  for (const char* config : {"config.json", "config_old.json", "config_nested.json"}) {
    if (!fs::exists(folder() / config)) continue;
    const Tensor logits = loaded(config)->forward(batch);
    EXPECT_LT(difference(logits, file.tensor("logits_float64")), 2e-5) << config;
    // Where positions are far, its angles are rounded to 0.0005.
    if (!file.contains("positions")) {
      EXPECT_LT(difference(logits, file.tensor("logits")), 2e-5) << config;
    }
  }
}

// Experts as two tensors of a layer.
nn::StateDict stacked(const nn::StateDict& state) {
  nn::StateDict list;
  Tensor gates;
  for (const auto& [name, tensor] : state) {
    const std::string layer = name.substr(0, name.rfind('.'));
    if (!layer.ends_with(".experts")) list.emplace_back(name, tensor);
    else if (name.ends_with(".w1")) gates = tensor;
    else if (name.ends_with(".w2")) list.emplace_back(layer + ".down_proj", tensor);
    else list.emplace_back(layer + ".gate_up_proj", cat({gates, tensor}, 1));
  }
  return list;
}

TEST_P(PublishedFamilies, HaveTheGradientsOfTransformers) {
  const SafetensorsFile file = expected();
  const TokenBatch batch = batch_in(file);
  const auto model = loaded("config.json");
  const int64_t rows = batch.rows, length = batch.tokens.extent(0) / rows;
  // The last token of a row has no next one.
  std::vector<int32_t> labels;
  for (int64_t i = 0; i < rows * length; ++i)
    labels.push_back(i % length + 1 == length ? -100 : batch.tokens.data<int32_t>()[i + 1]);
  const Tensor loss =
      mul(sum(model->losses(batch, Tensor::of(labels))), 1.0 / static_cast<double>(rows * (length - 1)));
  EXPECT_LT(difference(loss, file.tensor("loss")), 1e-6);
  backward(loss);
  nn::StateDict gradients;
  for (const nn::NamedParameter& p : model->named_parameters()) gradients.emplace_back(p.name, p.parameter.grad());
  size_t compared = 0;
  const ModelFamily& family = family_named(model->config().family);
  for (const auto& [name, gradient] : family.stacks_experts ? stacked(gradients) : nn::published(gradients)) {
    const std::string expected_name = "gradient." + published_name(family, name);
    ASSERT_TRUE(file.contains(expected_name)) << expected_name;
    EXPECT_LT(difference(gradient, file.tensor(expected_name)), 1e-4) << name;
    ++compared;
  }
  const auto& entries = file.entries();
  EXPECT_EQ(static_cast<size_t>(std::count_if(entries.begin(), entries.end(),
                                              [](const auto& e) { return e.name.starts_with("gradient."); })),
            compared);
}

// Where a span of blocks may begin: no layer from there on attends to keys of one before.
std::vector<int64_t> borders_of(const DecoderConfig& config) {
  std::vector<int64_t> borders;
  for (int64_t i = 0; i < std::ssize(config.layers); ++i) {
    if (std::none_of(config.layers.begin() + i, config.layers.end(),
                     [&](const LayerConfig& layer) { return layer.attention.shared_layer.value_or(i) < i; }))
      borders.push_back(i);
  }
  borders.push_back(std::ssize(config.layers));
  return borders;
}

// The embedding, spans of blocks and the head, one after the other.
TEST_P(PublishedFamilies, HaveTheSameBitsInParts) {
  const TokenBatch batch = batch_in(expected());
  const auto model = loaded("config.json");
  const int64_t layers = std::ssize(model->config().layers);
  const std::vector<int64_t> borders = borders_of(model->config());
  EXPECT_GE(borders.size(), 3u);
  Tensor x = model->embed(batch);
  for (size_t i = 0; i + 1 < borders.size(); ++i) x = model->blocks(x, batch, borders[i], borders[i + 1]);
  EXPECT_EQ(difference(model->head_logits(x), model->forward(batch)), 0);
  const Tensor labels = batch.tokens;
  EXPECT_EQ(difference(model->head_losses(model->blocks(model->embed(batch), batch, 0, layers), labels),
                       model->losses(batch, labels)),
            0);
  EXPECT_THROW(model->blocks(x, batch, 1, layers + 1), UsageError);
}

TEST_P(PublishedFamilies, HaveTheSameLossInChunks) {
  const TokenBatch batch = batch_in(expected());
  const auto model = loaded("config.json");
  const Tensor whole = model->losses(batch, batch.tokens);
  EXPECT_EQ(difference(model->losses(batch, batch.tokens, {.loss_max_bytes = 1 << 20}), whole), 0);
}

}  // namespace
}  // namespace tutti::models
