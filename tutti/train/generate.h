// Text generation from a run folder, which contains configuration, weights and tokenizer, or from a published model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tutti/train/text_settings.h"

namespace tutti::train {

// Settings that are not set are those of the model's files; with a run, those used for sample.txt, and if none is set,
// the text of sample.txt is reproduced.
struct GenerateOptions {
  std::optional<std::string> prompt;
  std::optional<int64_t> max_tokens;
  SamplingSettings sampling = {};
  std::vector<std::string> stops = {};  // end the text, beside those of the model's files, and are not part of it
  TextModelOptions model = {};
};

// Continues the prompt. Ranks that divide the model return the same. UsageError without a prompt for a published model,
// for settings that mean nothing, and as open_text_model().
std::string generate_text(const std::filesystem::path& path, const GenerateOptions& options);

}  // namespace tutti::train
