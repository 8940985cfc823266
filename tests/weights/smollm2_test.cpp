// SmolLM2-135M-Instruct against an independent float64 forward and transformers (tests/weights/expected/README.md).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/weights/support/published_models.h"
#include "tutti/autograd/tape.h"
#include "tutti/io/safetensors.h"
#include "tutti/train/ready_model.h"
#include "tutti/train/sample.h"
#include "tutti/train/score_text.h"

namespace tutti::train {
namespace {

constexpr const char* kModel = "smollm2-135m-instruct";
const std::string kFile = tutti::testing::published_file(kModel, "SmolLM2-135M-Instruct.Q4_1.gguf");

std::vector<int32_t> ids_in(const SafetensorsFile& file, const std::string& name) {
  const Tensor t = file.tensor(name);
  return {t.data<int32_t>(), t.data<int32_t>() + t.numel()};
}

class SmolLm2 : public ::testing::Test {
 protected:
  static const ReadyModel& ready() {
    static const ReadyModel model = open_published(kFile, 1024);
    return model;
  }
  const SafetensorsFile expected{TUTTI_SOURCE_DIR "/tests/weights/expected/smollm2.safetensors"};
};

TEST_F(SmolLm2, ContinuesTheCapitalOfFrance) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  std::vector<int32_t> ids = ready().tokenizer->encode("The capital of France is");
  EXPECT_EQ(ids, (std::vector<int32_t>{504, 3575, 282, 4649, 314}));
  EXPECT_EQ(ids, ids_in(expected, "capital"));
  continue_tokens(*ready().model, *ready().tokenizer, ids, {}, {.max_tokens = 1, .temperature = 0, .context = 1024});
  EXPECT_EQ(ready().tokenizer->decode(ids), "The capital of France is Paris");
}

TEST_F(SmolLm2, HasTheLogitsOfTheFormulas) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const NoGradScope no_grad;
  const std::vector<int32_t> ids = ids_in(expected, "capital"), best = ids_in(expected, "capital_top");
  const Tensor logits = ready().model->forward(
      {Tensor::of(ids), Tensor::of<int32_t>({0, 1, 2, 3, 4}), Tensor::of<int32_t>({0, 0, 0, 0, 0}), 1});
  const float* last = logits.data<float>() + 4 * logits.extent(1);
  for (size_t i = 0; i < best.size(); ++i)
    EXPECT_NEAR(last[best[i]], expected.tensor("capital_logits").data<double>()[i], 1e-4) << best[i];
  EXPECT_NEAR(last[best[0]], 17.371, 1e-3);
  EXPECT_EQ(std::max_element(last, last + logits.extent(1)) - last, best[0]);
}

TEST_F(SmolLm2, HasTheLogProbabilitiesOfTheFormulas) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const std::vector<int32_t> text = ids_in(expected, "text");
  const std::vector<float> got = token_log_probabilities(*ready().model, text, 1024);
  const double* exact = expected.tensor("log_probabilities").data<double>();
  ASSERT_EQ(got.size(), 900u);
  double sum = 0, exact_sum = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(got[i], exact[i], 1e-4) << i;
    sum += got[i], exact_sum += exact[i];
  }
  EXPECT_NEAR(sum / exact_sum, 1, 1e-6);
}

// The margins between the two best tokens are at least 0.02, so that rounding decides nowhere.
TEST_F(SmolLm2, TakesTheTokensThatTransformersTakes) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  for (int i = 0; expected.contains("prompt." + std::to_string(i)); ++i) {
    const std::string number = std::to_string(i);
    const std::vector<int32_t> prompt = ids_in(expected, "prompt." + number),
                               greedy = ids_in(expected, "greedy." + number);
    // One forward over all tokens says what each step would take.
    std::vector<int32_t> all = prompt;
    all.insert(all.end(), greedy.begin(), greedy.end());
    std::vector<int32_t> positions, zeros(all.size(), 0);
    for (size_t t = 0; t < all.size(); ++t) positions.push_back(static_cast<int32_t>(t));
    const NoGradScope no_grad;
    const Tensor logits = ready().model->forward({Tensor::of(all), Tensor::of(positions), Tensor::of(zeros), 1});
    const int64_t vocab = logits.extent(1);
    for (size_t t = 0; t < greedy.size(); ++t) {
      const float* row = logits.data<float>() + static_cast<int64_t>(prompt.size() + t - 1) * vocab;
      EXPECT_EQ(std::max_element(row, row + vocab) - row, greedy[t]) << "prompt " << i << ", token " << t;
    }
  }
}

}  // namespace
}  // namespace tutti::train
