// Text generation from a run folder, which contains configuration, weights and tokenizer.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tutti::train {

struct GenerateOptions {
  // Values that are not set are those used for sample.txt; if none is set, the text of sample.txt is reproduced.
  std::optional<std::string> prompt;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
};

// Continues the prompt with the newest checkpoint of the run, using the dtypes and options of its configuration. UsageError when
// there is no checkpoint; EnvironmentError when the tokenizer is not the one that the checkpoint was trained with.
std::string generate_text(const std::filesystem::path& run, const GenerateOptions& options);

}  // namespace tutti::train
