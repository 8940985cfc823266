// Text generation from a run folder, which contains configuration, weights and tokenizer, or from a published model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace tutti::comm {
class ProcessGroup;
}

namespace tutti::train {

struct GenerateOptions {
  // Values that are not set are those used for sample.txt; if none is set, the text of sample.txt is reproduced.
  std::optional<std::string> prompt;
  std::optional<int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
  // Ranks that divide the model, which make the same call: over all of them its products, its experts, or both. The
  // text is that of one rank.
  comm::ProcessGroup* group = nullptr;  // null: one rank
  bool divides_products = true, divides_experts = false;
};

// Continues the prompt with a published model, a folder of Hugging Face's or a GGUF file (ready_model.h), until an id
// that ends its texts (models/generation_defaults.h); the values that are not set are those of SampleOptions.
// UsageError without a prompt, for ranks that would divide the model, and for files that are no such model.
std::string generate_with_published(const std::filesystem::path& path, const GenerateOptions& options);

// UsageError when so many ranks cannot divide the model, before any is started.
void check_generate(const std::filesystem::path& run, int64_t ranks, const GenerateOptions& options);

// Continues the prompt with the newest checkpoint of the run, using the dtypes and options of its configuration. Ranks
// that divide the model return the same. UsageError when there is no checkpoint, and for ranks that cannot divide the
// model; EnvironmentError when the tokenizer is not the one that the checkpoint was trained with.
std::string generate_text(const std::filesystem::path& run, const GenerateOptions& options);

}  // namespace tutti::train
