// Files that are written of SmolLM2-135M-Instruct continue texts as llama.cpp does with them
// (tests/weights/expected/make_llama_cpp_tokens.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/support/temporary_folder.h"
#include "tests/weights/support/published_models.h"
#include "tutti/autograd/tape.h"
#include "tutti/generate/engine.h"
#include "tutti/io/safetensors.h"
#include "tutti/models/published_gguf.h"
#include "tutti/train/ready_model.h"

namespace tutti::train {
namespace {

constexpr const char* kModel = "smollm2-135m-instruct";
const std::string kFile = tutti::testing::published_file(kModel, "SmolLM2-135M-Instruct.Q4_1.gguf");

// The model, written in a format and opened again, and what llama.cpp does with that file.
struct Opened {
  explicit Opened(models::FileType file_type) : type(models::row_of(file_type).name) {
    write_published_gguf(models::PublishedModel(kFile), folder / "model.gguf", {.type = file_type});
    ready = open_published(folder / "model.gguf", 256);
  }
  std::string name(const char* what, int number) const { return fmt::format("{}.{}.{}", type, what, number); }
  std::vector<int32_t> ids(const char* what, int number) const {
    const Tensor t = expected.tensor(name(what, number));
    return {t.data<int32_t>(), t.data<int32_t>() + t.numel()};
  }

  const tutti::testing::TemporaryFolder folder;
  const std::string type;
  const SafetensorsFile expected{TUTTI_SOURCE_DIR "/tests/weights/expected/smollm2_llama_cpp.safetensors"};
  ReadyModel ready;
};

// The first of the tokens that the model would not take after those before it; their number when it takes all. One
// forward says what each step takes.
size_t first_difference(const models::Decoder& model, std::vector<int32_t> tokens, size_t prompt) {
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const NoGradScope no_grad;
  const Tensor logits =
      model.forward({Tensor::of(tokens), Tensor::of(positions), Tensor::of(std::vector<int32_t>(tokens.size(), 0)), 1});
  const int64_t vocab = logits.extent(1);
  for (size_t t = prompt; t < tokens.size(); ++t) {
    const float* row = logits.data<float>() + static_cast<int64_t>(t - 1) * vocab;
    if (std::max_element(row, row + vocab) - row != tokens[t]) return t - prompt;
  }
  return tokens.size() - prompt;
}

class SmolLm2InLlamaCpp : public ::testing::TestWithParam<models::FileType> {};

// llama.cpp's best two logits are nowhere less than 0.0003 apart, and f32 rounding changes a logit by some 0.00003.
TEST_P(SmolLm2InLlamaCpp, TakesTheSameTokens) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const Opened opened(GetParam());
  int prompts = 0;
  for (; opened.expected.contains(opened.name("prompt", prompts)); ++prompts) {
    std::vector<int32_t> tokens = opened.ids("prompt", prompts);
    const size_t prompt = tokens.size();
    const std::vector<int32_t> taken = opened.ids("greedy", prompts);
    tokens.insert(tokens.end(), taken.begin(), taken.end());
    EXPECT_EQ(first_difference(*opened.ready.model, std::move(tokens), prompt), 100U) << "prompt " << prompts;
  }
  EXPECT_EQ(prompts, 20);
}

// All of them at once, by the engine, as users write texts.
TEST_P(SmolLm2InLlamaCpp, WritesTheSameTexts) {
  TUTTI_NEEDS_PUBLISHED(kFile, kModel);
  const Opened opened(GetParam());
  generate::Engine engine(*opened.ready.model, *opened.ready.tokenizer, {.context = 256});
  std::map<generate::RequestId, std::vector<int32_t>> written;
  std::vector<generate::RequestId> requests;
  for (int i = 0; i < 20; ++i)
    requests.push_back(
        engine.submit({.prompt = opened.ids("prompt", i), .sampling = {.temperature = 0}, .max_tokens = 100}));
  while (engine.has_work()) {
    for (const generate::Event& event : engine.step()) {
      if (event.token) written[event.request].push_back(event.token->id);
    }
  }
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(written[requests[static_cast<size_t>(i)]], opened.ids("greedy", i)) << "prompt " << i;
}
INSTANTIATE_TEST_SUITE_P(, SmolLm2InLlamaCpp,
                         ::testing::Values(models::FileType::f32, models::FileType::f16, models::FileType::q8_0));

}  // namespace
}  // namespace tutti::train
