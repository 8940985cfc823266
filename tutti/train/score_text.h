// How likely a model finds a text.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "tutti/io/tokenizer.h"
#include "tutti/models/token_batch.h"

namespace tutti::train {

// The natural logarithm of the probability that the model gives to each token after the first, given at most `window`
// tokens before it: the text is cut into windows of so many tokens, which share one token. Empty for fewer than two
// tokens. The model is in evaluation mode meanwhile. UsageError for a window below 1 and for ids that the model does
// not have.
std::vector<float> token_log_probabilities(models::LanguageModel& model, std::span<const int32_t> tokens,
                                           int64_t window, const models::ForwardOptions& options = {});

struct TextScore {
  int64_t tokens = 0;          // that were predicted
  int64_t nbytes = 0;          // of text that they represent
  double log_probability = 0;  // natural, of all of them
  double perplexity() const;   // of a token; NaN when none was predicted
  double bits_per_byte() const;
};
// The score of documents, each by itself. A document begins with the id that the tokenizer puts before texts, where it
// does; else its first token is not predicted.
// With a cache dtype, as EngineOptions::cache_dtype, attention reads keys and values from a cache of codes.
TextScore score_documents(models::LanguageModel& model, const Tokenizer& tokenizer,
                          std::span<const std::string> documents, int64_t window,
                          const models::ForwardOptions& options = {}, std::optional<DType> cache_dtype = {});

}  // namespace tutti::train
