#include "tutti/train/sample.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "tutti/autograd/tape.h"
#include "tutti/core/hash.h"
#include "tutti/core/philox.h"
#include "tutti/io/token_stream.h"
#include "tutti/models/language_model.h"
#include "tutti/train/data/batch.h"
#include "tutti/train/step/run_model.h"
#include "tutti/train/step/tensor_ranks.h"

namespace tutti::train {
namespace {

models::TokenBatch context_of(std::span<const int32_t> tokens) {
  TokenRows rows{1, static_cast<int64_t>(tokens.size()), {tokens.begin(), tokens.end()}, {}, {}};
  rows.positions.resize(tokens.size());
  std::iota(rows.positions.begin(), rows.positions.end(), 0);
  return to_batch(rows);
}

// The ids of tokens: a vocabulary may have gaps, and a model rows for none of its tokens.
std::vector<int32_t> ids_of(const Tokenizer& tokenizer, int64_t vocab) {
  std::vector<int32_t> ids;
  for (int32_t id = 0; id < std::min(vocab, tokenizer.vocab_size()); ++id) {
    if (tokenizer.has_token(id)) ids.push_back(id);
  }
  return ids;
}

// The token of `order`, ids in ascending order, at the place `u` in [0, 1) of the distribution; ties in that order.
int32_t draw(const float* logits, std::vector<int32_t> order, const SampleOptions& options, double u) {
  const auto vocab = std::ssize(order);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return logits[a] > logits[b]; });
  if (options.temperature <= 0) return order[0];
  if (options.top_k > 0 && options.top_k < vocab) order.resize(static_cast<size_t>(options.top_k));
  std::vector<double> weights;
  for (const int32_t id : order) weights.push_back(std::exp((logits[id] - logits[order[0]]) / options.temperature));
  double left = u * std::accumulate(weights.begin(), weights.end(), 0.0);
  for (size_t i = 0; i < order.size(); ++i) {
    left -= weights[i];
    if (left < 0) return order[i];
  }
  return order.back();
}

}  // namespace

SampleOptions sample_options(const Config& config) {
  return {.max_tokens = config.validation.sample_tokens,
          .seed = static_cast<uint64_t>(config.training.seed),
          .context = config.data.sequence_length,
          .forward = forward_options(config)};
}

void continue_tokens(models::LanguageModel& model, const Tokenizer& tokenizer, std::vector<int32_t>& tokens,
                     std::optional<int32_t> end, const SampleOptions& options) {
  TUTTI_CHECK(!tokens.empty(), "there is no token to continue; give a prompt");
  TUTTI_CHECK(options.temperature >= 0 && std::isfinite(options.temperature), "temperature is {}; expected 0 or more",
              options.temperature);
  NoGradScope no_grad;
  const nn::EvalScope evaluating(model);
  const PhiloxKey key = philox_key(hash64("sample", options.seed));
  const std::vector<int32_t> ids = ids_of(tokenizer, model.vocab_size());
  for (int64_t t = 0; t < options.max_tokens; ++t) {
    const size_t seen = std::min(tokens.size(), static_cast<size_t>(options.context));
    const Tensor logits = logits_of(model, context_of(std::span(tokens).last(seen)), options.forward, options.mesh);
    const int64_t columns = logits.extent(1);
    const auto block = philox4x32({static_cast<uint32_t>(t), 0, 0, 0}, key);
    const int32_t next =
        draw(logits.data<float>() + (logits.extent(0) - 1) * columns, ids, options, block[0] * 0x1p-32);
    if (next == end) break;
    tokens.push_back(next);
  }
}

std::string sample_text(models::LanguageModel& model, const Tokenizer& tokenizer, const std::string& prompt,
                        const SampleOptions& options) {
  const DocumentFrame frame = document_frame(tokenizer);
  std::vector<int32_t> tokens = {frame.start};
  // The prompt is the whole text that the model continues, as a document is: its markers are meant.
  tokenizer.encode_into(prompt, tokens, {.parse_special = true});
  continue_tokens(model, tokenizer, tokens, frame.end, options);
  return tokenizer.decode(std::span(tokens).subspan(1), true);
}

}  // namespace tutti::train
