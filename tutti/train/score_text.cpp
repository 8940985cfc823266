#include "tutti/train/score_text.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <string>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/core/exact_sum.h"
#include "tutti/generate/engine.h"
#include "tutti/models/decoder_config.h"
#include "tutti/models/language_model.h"
#include "tutti/train/data/batch.h"

namespace tutti::train {
namespace {

constexpr int64_t kRequests = 64, kBatchTokens = 1024;  // of the engine
constexpr int64_t kAlone = 512;                         // tokens that are worth a forward of their own

// The tokens of `inputs` at positions from 0 on, each with the next one as its label.
TokenRows window_of(std::span<const int32_t> inputs, std::span<const int32_t> labels) {
  TokenRows rows{1, std::ssize(inputs), {inputs.begin(), inputs.end()}, {labels.begin(), labels.end()}, {}};
  rows.positions.resize(inputs.size());
  std::iota(rows.positions.begin(), rows.positions.end(), 0);
  return rows;
}

void check_window(int64_t window) {
  TUTTI_CHECK(window >= 1, "log probabilities in windows of {} tokens; expected 1 or more", window);
}

void check_ids(const models::LanguageModel& model, std::span<const int32_t> tokens) {
  for (const int32_t id : tokens)
    TUTTI_CHECK(id >= 0 && id < model.vocab_size(), "token {} is none of the model's {}", id, model.vocab_size());
}

// Short windows share batches. The cache holds those of a batch, and one that is half read.
generate::EngineOptions engine_options(const models::LanguageModel& model, int64_t window,
                                       const models::ForwardOptions& options, std::optional<DType> cache_dtype) {
  int64_t bytes = 0;
  for (const models::LayerConfig& layer : model.config().layers)
    bytes +=
        generate::position_bytes(layer.attention.kv_heads, layer.attention.head_dim, cache_dtype.value_or(DType::f32));
  return {.context = window + 1,
          .max_requests = kRequests,
          .batch_tokens = kBatchTokens,
          .cache_bytes = bytes * (window + 2 * kBatchTokens + kRequests * 2 * generate::kPageKeys),
          .cache_dtype = cache_dtype,
          .shares_prefixes = false,
          .forward = options};
}

}  // namespace

std::vector<float> token_log_probabilities(models::LanguageModel& model, std::span<const int32_t> tokens,
                                           int64_t window, const models::ForwardOptions& options) {
  check_window(window);
  check_ids(model, tokens);
  NoGradScope no_grad;
  const nn::EvalScope evaluating(model);
  std::vector<float> all;
  const size_t predicted = tokens.empty() ? 0 : tokens.size() - 1;
  for (size_t begin = 0; begin < predicted; begin += static_cast<size_t>(window)) {
    const size_t count = std::min(predicted - begin, static_cast<size_t>(window));
    const TokenRows rows = window_of(tokens.subspan(begin, count), tokens.subspan(begin + 1, count));
    const Tensor losses = model.losses(to_batch(rows), labels_of(rows), options);
    for (size_t i = 0; i < count; ++i) all.push_back(-losses.data<float>()[i]);
  }
  return all;
}

double TextScore::perplexity() const { return std::exp(-log_probability / static_cast<double>(tokens)); }
double TextScore::bits_per_byte() const { return -log_probability / std::numbers::ln2 / static_cast<double>(nbytes); }

TextScore score_documents(models::LanguageModel& model, const Tokenizer& tokenizer,
                          std::span<const std::string> documents, int64_t window, const models::ForwardOptions& options,
                          std::optional<DType> cache_dtype) {
  check_window(window);
  TextScore score;
  ExactSum sum(ExactTerm::value);
  std::vector<std::vector<int32_t>> texts;
  int64_t longest = 1;
  for (const std::string& document : documents) {
    texts.push_back(tokenizer.encode(document, {.add_special_tokens = true}));
    check_ids(model, texts.back());
    longest = std::max(longest, std::ssize(texts.back()));
  }
  // Tokens that are worth a forward of their own read no cache.
  const int64_t most = cache_dtype ? std::numeric_limits<int64_t>::max() : kAlone;
  generate::Engine engine(model, {0}, engine_options(model, std::min({window, longest, most}), options, cache_dtype));
  const auto add = [&](std::span<const float> logs) {
    sum.add(logs);
    score.tokens += std::ssize(logs);
  };
  const auto step = [&] {
    for (const generate::Event& event : engine.step()) {
      TUTTI_CHECK_ENV(event.error.empty(), "{}", event.error);
      add(event.prompt_log_probabilities);
    }
  };
  for (const std::vector<int32_t>& tokens : texts) {
    const size_t predicted = tokens.empty() ? 0 : tokens.size() - 1;
    for (size_t begin = 0; begin < predicted; begin += static_cast<size_t>(window)) {
      const size_t count = std::min(predicted - begin, static_cast<size_t>(window));
      const auto seen = std::span(tokens).subspan(begin, count + 1);
      if (std::ssize(seen) > most) add(token_log_probabilities(model, seen, window, options));
      else engine.submit({.prompt = {seen.begin(), seen.end()}, .max_tokens = 0, .prompt_log_probabilities = true});
    }
    for (size_t i = 1; i < tokens.size(); ++i) score.nbytes += tokenizer.text_nbytes(tokens[i]);
    while (engine.counters().waiting >= kRequests) step();
  }
  while (engine.has_work()) step();
  score.log_probability = sum.value();
  return score;
}

}  // namespace tutti::train
