// Sampling of text from a model.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/io/tokenizer.h"
#include "tutti/models/token_batch.h"
#include "tutti/train/config/config.h"

namespace tutti::dist {
class DeviceMesh;
using Mesh = std::shared_ptr<const DeviceMesh>;
}  // namespace tutti::dist

namespace tutti::train {

struct SampleOptions {
  int64_t max_tokens = 200;
  double temperature = 0.7;  // 0: always the most likely token
  int64_t top_k = 40;        // sample from the k most likely tokens; 0: all
  uint64_t seed = 1;
  int64_t context = 256;  // the maximum number of tokens that the model sees
  models::ForwardOptions forward = {};
  dist::Mesh mesh = {};  // of the ranks that divide the model (tensor_ranks.h), which make the same call
};

// The options with which a run samples its sample.txt.
SampleOptions sample_options(const Config& config);

// Continues `tokens` until one of `ends` is drawn, which is not appended, or for options.max_tokens. Only ids of the
// tokenizer are drawn. Token t depends only on the model, the first tokens and (seed, t). The model is in evaluation
// mode meanwhile. UsageError when there is no token to continue.
void continue_tokens(models::LanguageModel& model, const Tokenizer& tokenizer, std::vector<int32_t>& tokens,
                     std::span<const int32_t> ends, const SampleOptions& options);

// Continues `prompt` token by token until the end of the document or max_tokens. Token t depends only on the model, the
// prompt and (seed, t). The model is in evaluation mode meanwhile. Returns the prompt followed by its continuation.
std::string sample_text(models::LanguageModel& model, const Tokenizer& tokenizer, const std::string& prompt,
                        const SampleOptions& options);

}  // namespace tutti::train
