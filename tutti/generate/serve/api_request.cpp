#include "tutti/generate/serve/api_request.h"

#include <algorithm>
#include <charconv>
#include <span>

#include "tutti/generate/serve/api_error.h"

namespace tutti::generate::serve {
namespace {

constexpr JsonLimits kJson{.depth = 64, .nbytes = size_t{1} << 26, .values = size_t{1} << 21};
constexpr int64_t kLastId = std::numeric_limits<int32_t>::max();

// What is said wrongly in JSON is the client's error.
template <class Fn>
auto answering(Fn fn) {
  try {
    return fn();
  } catch (const UsageError& error) {
    throw bad_request(error.what());
  }
}

double number_within(const JsonValue& value, double least, double most) {
  const double number = value.number();
  if (!(number >= least && number <= most)) value.fail("is {}; expected {} to {}", value.shown(), least, most);
  return number;
}

int32_t token_of(const JsonValue& value) { return static_cast<int32_t>(value.whole(0, kLastId)); }

std::vector<int32_t> tokens_of(const JsonValue& value) {
  std::vector<int32_t> ids;
  for (const auto& [key, id] : value) ids.push_back(token_of(id));
  return ids;
}

// A text, a list of ids, or a list of either.
std::vector<Prompt> prompts_of(const JsonValue& value, int64_t most) {
  if (value.is_text()) return {value.string()};
  if (!value.is_array() || value.size() == 0)
    value.fail("is {}; expected a text, ids, or a list of them", value.shown());
  if ((*value.begin()).value.is_number()) return {tokens_of(value)};
  if (static_cast<int64_t>(value.size()) > most) value.fail("has {} entries; at most {} are taken", value.size(), most);
  std::vector<Prompt> prompts;
  for (const auto& [key, entry] : value) {
    if (entry.is_text()) prompts.emplace_back(entry.string());
    else prompts.emplace_back(tokens_of(entry));
  }
  return prompts;
}

std::vector<std::string> stops_of(const JsonValue& value, const ApiLimits& limits) {
  std::vector<std::string> stops;
  if (value.is_text()) stops.push_back(value.string());
  else
    for (const auto& [key, stop] : value) stops.push_back(stop.string());
  if (std::ssize(stops) > limits.stops)
    value.fail("has {} stop strings; at most {} are taken", stops.size(), limits.stops);
  for (const std::string& stop : stops)
    if (stop.empty() || std::ssize(stop) > limits.stop_nbytes)
      value.fail("has a stop string of {} bytes; expected 1 to {}", stop.size(), limits.stop_nbytes);
  return stops;
}

std::map<int32_t, double> biases_of(const JsonValue& value, const ApiLimits& limits) {
  if (static_cast<int64_t>(value.size()) > limits.biases)
    value.fail("has {} entries; at most {} are taken", value.size(), limits.biases);
  std::map<int32_t, double> biases;
  for (const auto& [key, bias] : value) {
    int32_t id = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    if (error != std::errc() || end != key.data() + key.size() || id < 0)
      value.fail("has the key '{}', which is no id", key);
    biases[id] = number_within(bias, -100, 100);
  }
  return biases;
}

// Whether the field is one of TextSettings, which then has its value.
bool take_setting(std::string_view key, const JsonValue& value, const ApiLimits& limits, TextSettings& settings) {
  if (key == "model") settings.model = value.string();
  else if (key == "max_tokens" || key == "max_completion_tokens")
    settings.max_tokens = value.whole(0, limits.max_tokens);
  else if (key == "min_tokens") settings.min_tokens = value.whole(0, limits.max_tokens);
  else if (key == "temperature") settings.temperature = number_within(value, 0, 100);
  else if (key == "top_p") settings.top_p = number_within(value, 0, 1);
  else if (key == "min_p") settings.min_p = number_within(value, 0, 1);
  else if (key == "top_k") settings.top_k = std::max<int64_t>(value.whole(-1, kLastId), 0);  // -1 means all in vLLM
  else if (key == "presence_penalty") settings.presence_penalty = number_within(value, -2, 2);
  else if (key == "frequency_penalty") settings.frequency_penalty = number_within(value, -2, 2);
  else if (key == "repetition_penalty") settings.repetition_penalty = number_within(value, 1e-3, 1e3);
  else if (key == "seed") settings.seed = static_cast<uint64_t>(value.whole());
  else if (key == "n") settings.n = value.whole(1, limits.choices);
  else if (key == "stop") settings.stops = stops_of(value, limits);
  else if (key == "stream") settings.stream = value.boolean();
  else if (key == "ignore_eos") settings.ignores_ends = value.boolean();
  else if (key == "logit_bias") settings.logit_bias = biases_of(value, limits);
  else if (key == "stream_options") {
    for (const auto& [option, chosen] : value) {
      if (option != "include_usage") chosen.fail("is not supported; stream_options takes include_usage");
      settings.include_usage = chosen.boolean();
    }
  } else {
    return false;
  }
  return true;
}

// Fields that change no token.
bool is_without_effect(std::string_view key) {
  static constexpr std::string_view kKeys[] = {
      "user", "metadata", "store", "service_tier", "parallel_tool_calls", "safety_identifier", "prompt_cache_key"};
  return std::find(std::begin(kKeys), std::end(kKeys), key) != std::end(kKeys);
}

[[noreturn]] void refuse_field(std::string_view key, std::span<const std::string> own) {
  std::vector<std::string> known{"model",
                                 "max_tokens",
                                 "max_completion_tokens",
                                 "min_tokens",
                                 "temperature",
                                 "top_p",
                                 "min_p",
                                 "top_k",
                                 "presence_penalty",
                                 "frequency_penalty",
                                 "seed",
                                 "repetition_penalty",
                                 "n",
                                 "stop",
                                 "stream",
                                 "stream_options",
                                 "ignore_eos",
                                 "logit_bias"};
  known.insert(known.end(), own.begin(), own.end());
  throw bad_request(unknown_name_message("field", key, known), "unknown_field");
}

// Reads the fields of a request that are not null: `take` says whether a field is one of its own.
template <class Take>
void read_fields(const JsonValue& top, const ApiLimits& limits, TextSettings& settings,
                 std::span<const std::string> own, Take take) {
  if (!top.is_object()) top.fail("is {}; expected an object", top.shown());
  for (const auto& [key, value] : top) {
    if (value.is_null() || is_without_effect(key)) continue;
    if (!take(key, value) && !take_setting(key, value, limits, settings)) refuse_field(key, own);
  }
}

void check_choices(int64_t prompts, int64_t n, const ApiLimits& limits) {
  if (prompts * n > limits.choices && n > 1)
    throw bad_request(fmt::format("n: {} choices of {} prompts; at most {} texts are made for a request", n, prompts,
                                  limits.choices));
}

}  // namespace

SamplingOptions TextSettings::sampling(const SamplingOptions& defaults) const {
  SamplingOptions options = defaults;
  options.temperature = temperature.value_or(defaults.temperature);
  options.top_p = top_p.value_or(defaults.top_p);
  options.min_p = min_p.value_or(defaults.min_p);
  options.top_k = top_k.value_or(defaults.top_k);
  options.presence_penalty = presence_penalty.value_or(defaults.presence_penalty);
  options.frequency_penalty = frequency_penalty.value_or(defaults.frequency_penalty);
  options.repetition_penalty = repetition_penalty.value_or(defaults.repetition_penalty);
  options.seed = seed.value_or(defaults.seed);
  if (!logit_bias.empty()) options.logit_bias = logit_bias;
  return options;
}

CompletionRequest parse_completion(std::string_view body, const ApiLimits& limits) {
  return answering([&] {
    const JsonDocument document(body, {.name = "request"}, kJson);
    CompletionRequest request;
    const std::string own[] = {"prompt", "echo", "logprobs"};
    read_fields(document.top(), limits, request.settings, own, [&](std::string_view key, const JsonValue& value) {
      if (key == "prompt") request.prompts = prompts_of(value, limits.prompts);
      else if (key == "echo") request.echo = value.boolean();
      else if (key == "best_of") value.whole(1, 1);
      else if (key == "logprobs") {
        request.settings.log_probabilities = true;
        request.settings.top_tokens = value.whole(0, limits.top_tokens);
      } else {
        return false;
      }
      return true;
    });
    if (request.prompts.empty()) throw bad_request("prompt is missing", "missing_field");
    check_choices(std::ssize(request.prompts), request.settings.n, limits);
    return request;
  });
}

ChatRequest parse_chat(std::string_view body, const ApiLimits& limits) {
  return answering([&] {
    JsonDocument document(body, {.name = "request"}, kJson);
    ChatRequest request{
        .settings = {}, .body = document, .messages = document.top(), .tools = {}, .documents = {}, .extra = {}};
    std::optional<JsonValue> messages;
    const std::string own[] = {
        "messages", "tools", "documents", "logprobs", "top_logprobs", "chat_template_kwargs", "add_generation_prompt"};
    read_fields(document.top(), limits, request.settings, own, [&](std::string_view key, const JsonValue& value) {
      if (key == "messages") messages = value;
      else if (key == "tools") request.tools = value;
      else if (key == "documents") request.documents = value;
      else if (key == "add_generation_prompt") request.add_generation_prompt = value.boolean();
      else if (key == "logprobs") request.settings.log_probabilities = value.boolean();
      else if (key == "top_logprobs") request.settings.top_tokens = value.whole(0, limits.top_tokens);
      else if (key == "reasoning_effort") request.extra.emplace_back(key, value);
      else if (key == "chat_template_kwargs")
        for (const auto& [name, variable] : value) request.extra.emplace_back(name, variable);
      else if (key == "tool_choice") {
        if (!value.is_text() || (value.text() != "auto" && value.text() != "none"))
          value.fail("is {}; supported are auto and none", value.shown());
      } else if (key == "response_format") {
        if (value.at("type").text() != "text") value.fail("is not supported; only the type text is");
      } else {
        return false;
      }
      return true;
    });
    if (!messages) throw bad_request("messages is missing", "missing_field");
    if (!messages->is_array() || messages->size() == 0)
      messages->fail("is {}; expected a list of at least one message", messages->shown());
    request.messages = *messages;
    if (request.settings.top_tokens > 0 && !request.settings.log_probabilities)
      throw bad_request("top_logprobs is given without logprobs: true");
    return request;
  });
}

EmbeddingRequest parse_embedding(std::string_view body, const ApiLimits& limits) {
  return answering([&] {
    const JsonDocument document(body, {.name = "request"}, kJson);
    EmbeddingRequest request;
    const JsonValue top = document.top();
    if (!top.is_object()) top.fail("is {}; expected an object", top.shown());
    for (const auto& [key, value] : top) {
      if (value.is_null() || is_without_effect(key)) continue;
      if (key == "model") request.model = value.string();
      else if (key == "input") request.inputs = prompts_of(value, limits.inputs);
      else if (key == "encoding_format") {
        if (value.text() != "float" && value.text() != "base64")
          value.fail("is {}; supported are float and base64", value.shown());
        request.as_base64 = value.text() == "base64";
      } else {
        const std::string known[] = {"model", "input", "encoding_format"};
        throw bad_request(unknown_name_message("field", key, known), "unknown_field");
      }
    }
    if (request.inputs.empty()) throw bad_request("input is missing", "missing_field");
    return request;
  });
}

TokenizeRequest parse_tokenize(std::string_view body) {
  return answering([&] {
    const JsonDocument document(body, {.name = "request"}, kJson);
    TokenizeRequest request;
    const JsonValue top = document.top();
    const auto prompt = top.find_set("prompt");
    const JsonValue text = prompt ? *prompt : top.at("content");  // the words of vLLM and of llama.cpp
    request.text = text.string();
    const auto adds = top.find_set("add_special_tokens");
    const auto special = top.find_set("add_special");
    if (adds) request.add_special_tokens = adds->boolean();
    else if (special) request.add_special_tokens = special->boolean();
    else request.add_special_tokens = prompt.has_value();
    return request;
  });
}

std::vector<int32_t> parse_detokenize(std::string_view body) {
  return answering([&] {
    const JsonDocument document(body, {.name = "request"}, kJson);
    return tokens_of(document.top().at("tokens"));
  });
}

}  // namespace tutti::generate::serve
