// Lesson 12: weights of a file in a module. The module has no memory until they are loaded, and a file that does not
// fit is told name by name.
// Last line of output: the weights of the file give the same logits
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <string>

#include "tutti/autograd/tape.h"
#include "tutti/models/language_model.h"
#include "tutti/nn/state_dict.h"
#include "tutti/ops.h"
#include "tutti/runtime/rank_context.h"

using namespace tutti;

Tensor logits_of(const models::LanguageModel& model) {
  const NoGradScope no_grad;
  const models::TokenBatch batch{Tensor::of<int32_t>({1, 2, 3, 4}), Tensor::of<int32_t>({0, 1, 2, 3}),
                                 zeros({4}, DType::i32), 1};
  return model.forward(batch);
}

int main() {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tutti-lesson-12-" + std::to_string(getpid()) + ".safetensors"))
          .string();
  seed_all(1);
  const auto trained = models::make_model("qwen3", "tiny", {.max_positions = 16});
  nn::initialize(*trained);
  nn::save(*trained, path);

  // The names are those of the published weights, so a file of a real Qwen3 loads into its flavor in the same way.
  const auto model = models::make_model("qwen3", "tiny", {.max_positions = 16});
  const nn::LoadReport report = nn::load(*model, path);
  std::printf("%zu tensors loaded, %zu missing\n", model->named_parameters().size(), report.missing.size());

  try {
    nn::load(*models::make_model("qwen3", "quickstart", {.max_positions = 16}), path);
  } catch (const UsageError& error) {
    const std::string text = error.what();
    std::printf("...%s\n", text.substr(text.find(" does not fit"), 120).c_str());
  }

  const Tensor expected = logits_of(*trained), found = logits_of(*model);
  const bool same = std::memcmp(expected.raw_data(), found.raw_data(), static_cast<size_t>(expected.nbytes())) == 0;
  std::filesystem::remove(path);
  std::printf("the weights of the file give %s logits\n", same ? "the same" : "other");
}
