// The requests of the HTTP interface, from their JSON. Fields are those of OpenAI's interface and, where it has none,
// those of vLLM and llama.cpp; unknown fields are refused with a hint, and so are values that would be ignored.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/generate/sampling.h"
#include "tutti/runtime/json_document.h"

namespace tutti::generate::serve {

struct ApiLimits {
  int64_t prompts = 64;        // of a completion
  int64_t inputs = 2048;       // of a request for embeddings
  int64_t choices = 16;        // n times prompts
  int64_t stops = 4;           // of a request
  int64_t stop_nbytes = 1024;  // of one stop string
  int64_t top_tokens = 20;     // whose log-probabilities are told
  int64_t biases = 1024;       // of logit_bias
  int64_t max_tokens = 1 << 20;
};

// Settings that completions and chats share.
struct TextSettings {
  std::string model;                  // "" when the request names none
  std::optional<int64_t> max_tokens;  // nothing: as many as fit
  int64_t min_tokens = 0;
  int64_t n = 1;
  std::vector<std::string> stops;
  bool stream = false;
  bool include_usage = false;  // of a stream
  bool log_probabilities = false;
  int64_t top_tokens = 0;  // whose log-probabilities are told beside each token
  bool ignores_ends = false;
  // Those that the request gives; others are the server's.
  std::optional<double> temperature, top_p, min_p, presence_penalty, frequency_penalty, repetition_penalty;
  std::optional<int64_t> top_k;
  std::optional<uint64_t> seed;
  std::map<int32_t, double> logit_bias;

  // `defaults` with what the request gives.
  SamplingOptions sampling(const SamplingOptions& defaults) const;
};

using Prompt = std::variant<std::string, std::vector<int32_t>>;

struct CompletionRequest {
  TextSettings settings;
  std::vector<Prompt> prompts;
  bool echo = false;
};

// The values refer to `body`.
struct ChatRequest {
  TextSettings settings;
  JsonDocument body;
  JsonValue messages;
  std::optional<JsonValue> tools;
  std::optional<JsonValue> documents;
  std::vector<std::pair<std::string, JsonValue>> extra;  // chat_template_kwargs
  bool add_generation_prompt = true;
};

struct EmbeddingRequest {
  std::string model;
  std::vector<Prompt> inputs;
  bool as_base64 = false;
};

struct TokenizeRequest {
  std::string text;
  bool add_special_tokens = true;
};

// ApiError 400, which names the field, for anything else than such a request.
CompletionRequest parse_completion(std::string_view body, const ApiLimits& limits = {});
ChatRequest parse_chat(std::string_view body, const ApiLimits& limits = {});
EmbeddingRequest parse_embedding(std::string_view body, const ApiLimits& limits = {});
TokenizeRequest parse_tokenize(std::string_view body);
std::vector<int32_t> parse_detokenize(std::string_view body);

}  // namespace tutti::generate::serve
