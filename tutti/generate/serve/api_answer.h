// The answers of the HTTP interface, as JSON.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::generate::serve {

struct AnswerHead {
  std::string id;       // such as "chatcmpl-1"
  int64_t created = 0;  // seconds since 1970
  std::string model;
  bool is_chat = false;
};

// A token and others that were likely in its place. Bytes need not be text by themselves.
struct ToldToken {
  std::string bytes;
  float log_probability = 0;
  std::vector<std::pair<std::string, float>> top = {};
};

// A text, or what a chunk of a stream adds to it.
struct Choice {
  int64_t index = 0;
  std::string text;
  std::string finish_reason = {};  // "stop", "length", ...; "" while it goes on
  bool tells_tokens = false;
  std::vector<ToldToken> tokens = {};
  int64_t offset = 0;  // of the first token in the text, in bytes; of completions
};

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
};

std::string answer_json(const AnswerHead& head, std::span<const Choice> choices, const Usage& usage);
// Chunks of a stream: the first of a chat tells the role; the last one of a choice has a finish_reason and no text.
std::string role_chunk_json(const AnswerHead& head, int64_t index);
std::string chunk_json(const AnswerHead& head, const Choice& choice);
std::string usage_chunk_json(const AnswerHead& head, const Usage& usage);

// "data: JSON\n\n", as Server-Sent Events have it.
std::string server_sent_event(std::string_view json);
constexpr std::string_view kLastEvent = "data: [DONE]\n\n";

std::string models_json(std::string_view model, int64_t created, int64_t context);
std::string embeddings_json(std::string_view model, std::span<const std::vector<float>> vectors, bool as_base64,
                            int64_t prompt_tokens);
std::string tokens_json(std::span<const int32_t> ids, int64_t context);
std::string detokenized_json(std::string_view text);

// A metric of Prometheus's text format.
struct Metric {
  std::string name;
  std::string help;
  double value = 0;
  bool is_counter = false;  // it only grows; otherwise it is a gauge
};
std::string metrics_text(std::span<const Metric> metrics);

}  // namespace tutti::generate::serve
