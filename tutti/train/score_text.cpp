#include "tutti/train/score_text.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <string>

#include "tutti/autograd/tape.h"
#include "tutti/core/error.h"
#include "tutti/core/exact_sum.h"
#include "tutti/models/language_model.h"
#include "tutti/train/data/batch.h"

namespace tutti::train {
namespace {

// The tokens of `inputs` at positions from 0 on, each with the next one as its label.
TokenRows window_of(std::span<const int32_t> inputs, std::span<const int32_t> labels) {
  TokenRows rows{1, std::ssize(inputs), {inputs.begin(), inputs.end()}, {labels.begin(), labels.end()}, {}};
  rows.positions.resize(inputs.size());
  std::iota(rows.positions.begin(), rows.positions.end(), 0);
  return rows;
}

}  // namespace

std::vector<float> token_log_probabilities(models::LanguageModel& model, std::span<const int32_t> tokens,
                                           int64_t window, const models::ForwardOptions& options) {
  TUTTI_CHECK(window >= 1, "log probabilities in windows of {} tokens; expected 1 or more", window);
  for (const int32_t id : tokens)
    TUTTI_CHECK(id >= 0 && id < model.vocab_size(), "token {} is none of the model's {}", id, model.vocab_size());
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
                          std::span<const std::string> documents, int64_t window,
                          const models::ForwardOptions& options) {
  TextScore score;
  ExactSum sum(ExactTerm::value);
  for (const std::string& document : documents) {
    const std::vector<int32_t> tokens = tokenizer.encode(document, {.add_special_tokens = true});
    const std::vector<float> logs = token_log_probabilities(model, tokens, window, options);
    sum.add(logs);
    score.tokens += std::ssize(logs);
    for (size_t i = 1; i < tokens.size(); ++i) score.nbytes += tokenizer.text_nbytes(tokens[i]);
  }
  score.log_probability = sum.value();
  return score;
}

}  // namespace tutti::train
