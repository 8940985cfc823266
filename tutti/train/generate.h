// Text from a run folder, which holds all that it takes: configuration, weights, and the tokenizer with its markers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tutti::train {

struct GenerateOptions {
  // What is left out is that of sample.txt, whose text comes out when nothing is given.
  std::optional<std::string> prompt;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
};

// Continues the prompt with the newest checkpoint of the run, computing as its configuration says. UsageError when there
// is none; EnvironmentError when the tokenizer is not the one that the checkpoint was trained with.
std::string generate_text(const std::filesystem::path& run, const GenerateOptions& options);

}  // namespace tutti::train
