// What is asked of an engine, and what it tells.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/generate/sampling.h"

namespace tutti::generate {

using RequestId = uint64_t;

struct Request {
  std::vector<int32_t> prompt;  // at least one token
  SamplingOptions sampling = {};
  int64_t max_tokens = 200;              // generated ones; 0: the prompt is only read
  int64_t min_tokens = 0;                // no end is drawn before
  std::vector<int32_t> ends = {};        // ids that end the text, which are not told
  std::vector<int32_t> suppressed = {};  // ids that are never drawn
  // Also tells, with each generated token, so many of the most likely tokens and their log-probabilities.
  int64_t top_log_probabilities = 0;
  // Also tells the log-probability of each token of the prompt but the first.
  bool prompt_log_probabilities = false;
  // A text beyond the context of the engine is continued from its last tokens, as many as the context has, as if it
  // began there; each of them then costs a whole forward. Otherwise the request ends there.
  bool slides = false;
  std::optional<std::chrono::steady_clock::time_point> deadline = {};
};

struct TokenChance {
  int32_t id;
  float log_probability;  // natural, of the logits as the model gives them, before any setting of SamplingOptions
};
struct GeneratedToken {
  int32_t id;
  float log_probability;
  std::vector<TokenChance> top = {};  // the most likely first, ties by id
};

enum class Finish : uint8_t {
  no,
  end,        // an id of Request::ends was drawn
  length,     // max_tokens, or the context is full
  cancelled,  // by cancel()
  deadline,   // by Request::deadline
  failed,     // `error` says why
};

struct Event {
  RequestId request;
  std::optional<GeneratedToken> token = {};
  std::vector<float> prompt_log_probabilities = {};  // all at once, with the first event of a request
  Finish finish = Finish::no;
  std::string error = {};
};

}  // namespace tutti::generate
