// Which token follows: the settings of a request, and the draw from one row of logits.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace tutti::generate {

// The order in which the steps that narrow a distribution are taken, and with it what penalties look at.
//   transformers  penalties, temperature, top-k, top-p, min-p. The repetition penalty looks at all tokens, presence and
//                 frequency penalties look at generated ones.
//   llama_cpp     penalties, top-k, top-p, min-p, temperature. All penalties look at the last 64 tokens.
enum class SamplingOrder : uint8_t { transformers, llama_cpp };

struct SamplingOptions {
  double temperature = 1;         // 0: always the most likely token, the lowest id of those that are equally likely
  int64_t top_k = 0;              // draw from the k most likely tokens; 0: all
  double top_p = 1;               // draw from the fewest tokens whose probabilities add up to top_p
  double min_p = 0;               // leave out tokens of less than min_p times the largest probability
  double repetition_penalty = 1;  // divides positive logits of tokens that have occurred and multiplies negative ones
  double presence_penalty = 0;    // is subtracted from the logits of tokens that have occurred
  double frequency_penalty = 0;   // is subtracted as often as the token has occurred
  std::map<int32_t, double> logit_bias = {};  // is added to logits before anything else
  SamplingOrder order = SamplingOrder::transformers;
  uint64_t seed = 1;
};

// UsageError, naming the setting, for one that is negative or not finite, a top_p or min_p outside of [0, 1], a
// repetition penalty that is not positive, and biases of ids outside of the vocabulary.
void validate(const SamplingOptions& options, int64_t vocab);

// What a draw looks at besides the logits.
struct SamplingState {
  std::span<const int32_t> tokens;     // of the prompt, then generated ones
  int64_t prompt = 0;                  // so many of them
  std::span<const int32_t> forbidden;  // ids that are not drawn
};

// A token that may be drawn. A vector of them serves as memory for many draws of a thread.
struct Candidate {
  float logit;
  int32_t id;
};

// Draws from `logits`, of which only `ids`, in ascending order, are tokens. The draw is a function of the logits, the
// options and the number of generated tokens, which is the place in the stream of random numbers of options.seed: it
// does not depend on other requests. Ties go to the lowest id (numerics contract, N8), also at the k-th place.
// UsageError when no token is left, or when a logit is NaN.
int32_t draw_token(std::span<const float> logits, std::span<const int32_t> ids, const SamplingOptions& options,
                   const SamplingState& state, std::vector<Candidate>& memory);
int32_t draw_token(std::span<const float> logits, std::span<const int32_t> ids, const SamplingOptions& options,
                   const SamplingState& state);

struct TokenProbability {
  int32_t id;
  double probability;
};
// The tokens among which draw_token draws, the most likely first, and with what probabilities. Errors as draw_token.
std::vector<TokenProbability> distribution_of(std::span<const float> logits, std::span<const int32_t> ids,
                                              const SamplingOptions& options, const SamplingState& state);

}  // namespace tutti::generate
