#include "tutti/models/published_writer.h"

#include <algorithm>
#include <cmath>

#include "tutti/core/error.h"
#include "tutti/models/decoder_difference.h"
#include "tutti/models/family.h"
#include "tutti/models/published_config.h"
#include "tutti/models/published_rope.h"
#include "tutti/runtime/json_writer.h"

namespace tutti::models {
namespace {

// GGUF files hold f32, where 1e-6 is 9.99999997e-07: the shortest number that rounds to it is the one that was meant.
std::string shortest(double value) {
  const float narrow = static_cast<float>(value);
  std::string text = static_cast<double>(narrow) == value ? fmt::format("{}", narrow) : fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

template <class T>
std::string json_list(const std::vector<T>& values) {
  JsonWriter json;
  json.array();
  for (const T& value : values) json.value(value);
  return json.end().take();
}

// The first layer from which on all have a window.
int64_t first_of_the_last_windows(const DecoderConfig& config) {
  const auto last_full = std::find_if(config.layers.rbegin(), config.layers.rend(),
                                      [](const LayerConfig& layer) { return layer.attention.window == 0; });
  return config.layers.rend() - last_full;
}

std::string_view name_in_torch(DType dtype) {
  if (dtype == DType::bf16) return "bfloat16";
  return dtype == DType::f16 ? "float16" : "float32";
}

}  // namespace

void PublishedKeys::set(std::string key, bool value) { values_[std::move(key)] = value ? "true" : "false"; }
void PublishedKeys::set(std::string key, int64_t value) { values_[std::move(key)] = fmt::format("{}", value); }
void PublishedKeys::set(std::string key, double value) { values_[std::move(key)] = shortest(value); }
void PublishedKeys::set(std::string key, std::string_view value) { values_[std::move(key)] = json_quoted(value); }
void PublishedKeys::set(std::string key, const std::vector<std::string>& values) {
  values_[std::move(key)] = json_list(values);
}
void PublishedKeys::set(std::string key, const std::vector<int64_t>& values) {
  values_[std::move(key)] = json_list(values);
}
void PublishedKeys::set(std::string key, const PublishedKeys& object) { values_[std::move(key)] = object.json(); }
void PublishedKeys::set_null(std::string key) { values_[std::move(key)] = "null"; }

std::string PublishedKeys::json() const {
  std::string text = "{";
  for (const auto& [key, value] : values_) {
    text += fmt::format("{}\n  {}: ", text == "{" ? "" : ",", json_quoted(key));
    for (const char c : value) text += c == '\n' ? "\n  " : std::string(1, c);  // an object within stands deeper
  }
  return text + "\n}";
}

void write_sizes(const PublishedClass& c, const DecoderConfig& config, PublishedKeys& keys) {
  const AttentionConfig& a = config.layers.front().attention;
  keys.set("model_type", c.model_type);
  keys.set("architectures", std::vector<std::string>{c.architecture});
  keys.set("hidden_size", config.dim);
  keys.set("num_hidden_layers", std::ssize(config.layers));
  keys.set("num_attention_heads", a.heads);
  keys.set("num_key_value_heads", a.kv_heads);
  keys.set("head_dim", a.head_dim);
  keys.set("vocab_size", config.vocab);
  keys.set("tie_word_embeddings", config.tied_embeddings);
  keys.set("rms_norm_eps", config.norm_eps);
  keys.set("attention_dropout", 0.0);
  keys.set("initializer_range", config.init_std);
  keys.set("use_cache", true);
}

void write_decoder(const PublishedClass& c, const DecoderConfig& config, PublishedKeys& keys) {
  const AttentionConfig& a = config.layers.front().attention;
  write_sizes(c, config, keys);
  keys.set("hidden_act", "silu");
  write_rope(a.rope, a.head_dim, keys);
}

void write_layer_types(const DecoderConfig& config, PublishedKeys& keys) {
  std::vector<std::string> types;
  for (const LayerConfig& layer : config.layers)
    types.emplace_back(layer.attention.window > 0 ? "sliding_attention" : "full_attention");
  keys.set("layer_types", types);
}

void write_windows_from_a_layer_on(const DecoderConfig& config, bool has_types, PublishedKeys& keys) {
  const int64_t first = first_of_the_last_windows(config);
  int64_t window = 0;
  for (const LayerConfig& layer : config.layers) window = std::max(window, layer.attention.window);
  keys.set("use_sliding_window", window > 0);
  keys.set("max_window_layers", first);
  if (window > 0) keys.set("sliding_window", window);
  else keys.set_null("sliding_window");
  if (has_types) write_layer_types(config, keys);
}

std::string published_config_json(const DecoderConfig& config, DType dtype, const PublishedFacts& facts) {
  validate(config);
  PublishedKeys keys;
  family_named(config.family).write(config, keys);
  for (const char* key : {"dtype", "torch_dtype"}) keys.set(key, name_in_torch(dtype));  // the newer and the older name
  if (facts.positions) keys.set("max_position_embeddings", *facts.positions);
  const std::pair<const char*, std::optional<int64_t>> tokens[] = {{"bos_token_id", facts.bos_token},
                                                                   {"pad_token_id", facts.pad_token}};
  for (const auto& [key, token] : tokens) {
    if (token) keys.set(key, *token);
    else keys.set_null(key);
  }
  if (facts.eos_tokens.size() == 1) keys.set("eos_token_id", facts.eos_tokens[0]);
  else if (facts.eos_tokens.empty()) keys.set_null("eos_token_id");
  else keys.set("eos_token_id", facts.eos_tokens);
  if (!facts.quantization.empty()) {
    PublishedKeys quantization;
    quantization.set("quant_method", kOwnQuantization);
    quantization.set("kind", facts.quantization);
    keys.set("quantization_config", quantization);
  }
  std::string text = keys.json() + "\n";
  PublishedConfig read("config.json", text);
  check_described(config, read_published_config(read), fmt::format("a config.json of the family {}", config.family));
  return text;
}

}  // namespace tutti::models
