#include "tutti/generate/serve/api_answer.h"

#include <fmt/core.h>

#include <set>
#include <string>

#include "tutti/generate/serve/text_stream.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::generate::serve {
namespace {

void begin_answer(JsonWriter& json, const AnswerHead& head, std::string_view object) {
  json.object()
      .member("id", head.id)
      .member("object", object)
      .member("created", head.created)
      .member("model", head.model);
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").object();
  json.member("prompt_tokens", usage.prompt_tokens).member("completion_tokens", usage.completion_tokens);
  json.member("total_tokens", usage.prompt_tokens + usage.completion_tokens).end();
}

void write_token(JsonWriter& json, const std::string& bytes, float log_probability) {
  json.member("token", valid_utf8(bytes)).member("logprob", static_cast<double>(log_probability));
  json.key("bytes").array();
  for (const char byte : bytes) json.value(static_cast<int64_t>(static_cast<unsigned char>(byte)));
  json.end();
}

void write_chat_tokens(JsonWriter& json, const Choice& choice) {
  json.key("content").array();
  for (const ToldToken& token : choice.tokens) {
    json.object();
    write_token(json, token.bytes, token.log_probability);
    json.key("top_logprobs").array();
    for (const auto& [bytes, log_probability] : token.top) {
      json.object();
      write_token(json, bytes, log_probability);
      json.end();
    }
    json.end().end();
  }
  json.end();
}

// The keys are texts: of tokens with the same one, such as bytes that are no characters, the likeliest stands for all.
void write_top_texts(JsonWriter& json, const ToldToken& token) {
  json.object();
  std::set<std::string> written;
  for (const auto& [bytes, log_probability] : token.top) {
    const std::string text = valid_utf8(bytes);
    if (written.insert(text).second) json.member(text, static_cast<double>(log_probability));
  }
  json.end();
}

void write_completion_tokens(JsonWriter& json, const Choice& choice) {
  json.key("tokens").array();
  for (const ToldToken& token : choice.tokens) json.value(valid_utf8(token.bytes));
  json.end().key("token_logprobs").array();
  for (const ToldToken& token : choice.tokens) json.value(static_cast<double>(token.log_probability));
  json.end().key("top_logprobs").array();
  for (const ToldToken& token : choice.tokens) write_top_texts(json, token);
  json.end().key("text_offset").array();
  int64_t offset = choice.offset;
  for (const ToldToken& token : choice.tokens) {
    json.value(offset);
    offset += std::ssize(token.bytes);
  }
  json.end();
}

// What follows the text of a choice.
void end_choice(JsonWriter& json, const Choice& choice, bool is_chat) {
  json.key("logprobs");
  if (!choice.tells_tokens) {
    json.value(nullptr);
  } else {
    json.object();
    if (is_chat) write_chat_tokens(json, choice);
    else write_completion_tokens(json, choice);
    json.end();
  }
  json.key("finish_reason");
  if (choice.finish_reason.empty()) json.value(nullptr);
  else json.value(choice.finish_reason);
  json.end();
}

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t count = std::min<size_t>(3, bytes.size() - i);
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
    for (size_t j = 0; j < 4; ++j) text += j <= count ? kDigits[group >> (18 - 6 * j) & 63] : '=';
  }
  return text;
}

}  // namespace

std::string answer_json(const AnswerHead& head, std::span<const Choice> choices, const Usage& usage) {
  JsonWriter json;
  begin_answer(json, head, head.is_chat ? "chat.completion" : "text_completion");
  json.key("choices").array();
  for (const Choice& choice : choices) {
    json.object().member("index", choice.index);
    if (head.is_chat) json.key("message").object().member("role", "assistant").member("content", choice.text).end();
    else json.member("text", choice.text);
    end_choice(json, choice, head.is_chat);
  }
  json.end();
  write_usage(json, usage);
  json.end();
  return json.take();
}

std::string role_chunk_json(const AnswerHead& head, int64_t index) {
  JsonWriter json;
  begin_answer(json, head, "chat.completion.chunk");
  json.key("choices").array().object().member("index", index);
  json.key("delta").object().member("role", "assistant").member("content", "").end();
  end_choice(json, {}, true);
  json.end().end();
  return json.take();
}

std::string chunk_json(const AnswerHead& head, const Choice& choice) {
  JsonWriter json;
  begin_answer(json, head, head.is_chat ? "chat.completion.chunk" : "text_completion");
  json.key("choices").array().object().member("index", choice.index);
  if (!head.is_chat) {
    json.member("text", choice.text);
  } else {
    json.key("delta").object();
    if (!choice.text.empty()) json.member("content", choice.text);
    json.end();
  }
  end_choice(json, choice, head.is_chat);
  json.end().end();
  return json.take();
}

std::string usage_chunk_json(const AnswerHead& head, const Usage& usage) {
  JsonWriter json;
  begin_answer(json, head, head.is_chat ? "chat.completion.chunk" : "text_completion");
  json.key("choices").array().end();
  write_usage(json, usage);
  json.end();
  return json.take();
}

std::string server_sent_event(std::string_view json) { return fmt::format("data: {}\n\n", json); }

std::string models_json(std::string_view model, int64_t created, int64_t context) {
  JsonWriter json;
  json.object().member("object", "list").key("data").array().object();
  json.member("id", model).member("object", "model").member("created", created).member("owned_by", "tutti");
  json.member("max_model_len", context).end().end().end();
  return json.take();
}

std::string embeddings_json(std::string_view model, std::span<const std::vector<float>> vectors, bool as_base64,
                            int64_t prompt_tokens) {
  JsonWriter json;
  json.object().member("object", "list").key("data").array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    json.object().member("object", "embedding").member("index", static_cast<int64_t>(i)).key("embedding");
    const std::vector<float>& vector = vectors[i];
    if (as_base64) {
      json.value(base64({reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float)}));
    } else {
      json.array();
      for (const float number : vector) json.value(static_cast<double>(number));
      json.end();
    }
    json.end();
  }
  json.end().member("model", model).key("usage").object();
  json.member("prompt_tokens", prompt_tokens).member("total_tokens", prompt_tokens).end().end();
  return json.take();
}

std::string tokens_json(std::span<const int32_t> ids, int64_t context) {
  JsonWriter json;
  json.object()
      .member("count", static_cast<int64_t>(ids.size()))
      .member("max_model_len", context)
      .key("tokens")
      .array();
  for (const int32_t id : ids) json.value(static_cast<int64_t>(id));
  json.end().end();
  return json.take();
}

std::string detokenized_json(std::string_view text) {
  const std::string valid = valid_utf8(text);
  JsonWriter json;
  json.object().member("prompt", valid).member("content", valid).end();  // the words of vLLM and of llama.cpp
  return json.take();
}

std::string metrics_text(std::span<const Metric> metrics) {
  std::string text;
  for (const Metric& metric : metrics)
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{0} {3}\n", metric.name, metric.help,
                        metric.is_counter ? "counter" : "gauge", metric.value);
  return text;
}

}  // namespace tutti::generate::serve
