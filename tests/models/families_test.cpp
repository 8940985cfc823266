// Tiny models of published families, as transformers saves them, compute what transformers and an independent float64
// forward do (tests/models/families/README.md).
#include "tutti/models/family.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tutti/autograd/backward.h"
#include "tutti/io/safetensors.h"
#include "tutti/models/decoder.h"
#include "tutti/nn/published_experts.h"
#include "tutti/ops.h"
#include "tutti/runtime/json_document.h"

namespace tutti::models {
namespace {

namespace fs = std::filesystem;

const fs::path kFolder = TUTTI_SOURCE_DIR "/tests/models/families";
constexpr int64_t kPositions = 9100;

std::vector<std::string> cases() {
  std::vector<std::string> names;
  for (const fs::directory_entry& entry : fs::directory_iterator(kFolder)) {
    const std::string name = entry.path().filename().string();
    if (entry.is_directory() && name != "bert") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

TokenBatch batch_in(const SafetensorsFile& expected) {
  const Tensor tokens = expected.tensor("tokens");
  const int64_t rows = tokens.extent(0), length = tokens.extent(1), count = rows * length;
  std::vector<int32_t> positions;
  for (int64_t i = 0; i < count; ++i) positions.push_back(static_cast<int32_t>(i % length));
  const bool has_positions = expected.contains("positions");
  return {reshape(tokens, {count}),
          has_positions ? reshape(expected.tensor("positions"), {count}) : Tensor::of(positions),
          Tensor::of(std::vector<int32_t>(static_cast<size_t>(count), 0)), rows};
}

// The largest difference, relative to the largest magnitude of `expected`.
double difference(const Tensor& got, const Tensor& expected) {
  const Tensor a = to_contiguous(cast(got, DType::f64)), b = to_contiguous(cast(expected, DType::f64));
  EXPECT_EQ(a.numel(), b.numel());
  double worst = 0, largest = 0;
  for (int64_t i = 0; i < a.numel(); ++i) {
    const double difference = std::abs(a.data<double>()[i] - b.data<double>()[i]);
    worst = std::max(worst, std::isnan(difference) ? HUGE_VAL : difference);
    largest = std::max(largest, std::abs(b.data<double>()[i]));
  }
  return largest == 0 ? worst : worst / largest;
}

class PublishedFamilies : public ::testing::TestWithParam<std::string> {
 protected:
  fs::path folder() const { return kFolder / GetParam(); }
  SafetensorsFile expected() const { return SafetensorsFile((folder() / "expected.safetensors").string()); }
  std::unique_ptr<Decoder> loaded(const char* config) const {
    auto model = std::make_unique<Decoder>(read_published_config((folder() / config).string()), kPositions);
    nn::load(*model, folder().string());
    return model;
  }
};
INSTANTIATE_TEST_SUITE_P(, PublishedFamilies, ::testing::ValuesIn(cases()), [](const auto& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

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
  for (const auto& [name, gradient] : nn::published(gradients)) {
    ASSERT_TRUE(file.contains("gradient." + name)) << name;
    EXPECT_LT(difference(gradient, file.tensor("gradient." + name)), 1e-4) << name;
    ++compared;
  }
  const auto& entries = file.entries();
  EXPECT_EQ(static_cast<size_t>(std::count_if(entries.begin(), entries.end(),
                                              [](const auto& e) { return e.name.starts_with("gradient."); })),
            compared);
}

// The embedding, spans of blocks and the head, one after the other.
TEST_P(PublishedFamilies, HaveTheSameBitsInParts) {
  const TokenBatch batch = batch_in(expected());
  const auto model = loaded("config.json");
  const int64_t layers = std::ssize(model->config().layers);
  Tensor x = model->embed(batch);
  for (int64_t i = 0; i < layers; ++i) x = model->blocks(x, batch, i, i + 1);
  EXPECT_EQ(difference(model->head_logits(x), model->forward(batch)), 0);
  const Tensor labels = batch.tokens;
  EXPECT_EQ(difference(model->head_losses(model->blocks(model->embed(batch), batch, 0, layers), labels),
                       model->losses(batch, labels)),
            0);
  EXPECT_THROW(model->blocks(x, batch, 1, layers + 1), UsageError);
}

}  // namespace
}  // namespace tutti::models
