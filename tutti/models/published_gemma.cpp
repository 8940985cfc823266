#include "tutti/models/published_gemma.h"

#include <algorithm>
#include <cmath>

namespace tutti::models {
namespace {

constexpr int64_t kWindow = 4096, kPeriod = 6;
constexpr double kQueryScalar = 256;

}  // namespace

double read_cap(const char* key, const std::optional<double>& by_default, PublishedConfig& file) {
  if (file.is_null(key)) return 0;
  const std::optional<JsonValue> found = file.find(key);
  if (!found) return by_default.value_or(0);
  if (found->number() <= 0) file.refuse(key, found->shown(), "a positive number, or null");
  return found->number();
}

void write_cap(const char* key, double cap, PublishedKeys& keys) {
  if (cap > 0) keys.set(key, cap);
  else keys.set_null(key);
}

int64_t largest_window(const DecoderConfig& config) {
  int64_t window = 0;
  for (const LayerConfig& layer : config.layers) window = std::max(window, layer.attention.window);
  return window;
}

void make_gemma(DecoderConfig& config) {
  config.zero_centered_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(std::max<int64_t>(config.dim, 1)));
  for (LayerConfig& layer : config.layers) {
    layer.output_norms = true;
    layer.feed_forward.activation = Activation::gelu_tanh;
  }
}

DecoderConfig read_gemma(const GemmaClass& c, PublishedConfig& file) {
  refuse_quantized(file);
  DecoderConfig config = read_sizes(c.names, file, nullptr);
  make_gemma(config);
  read_feed_forward("intermediate_size", c.ffn_dim, config, file, nullptr);
  read_flag("attention_bias", false, &AttentionConfig::qkv_bias, config, file, nullptr);
  const double scalar = file.take("query_pre_attn_scalar", kQueryScalar);
  if (!(scalar > 0)) file.refuse("query_pre_attn_scalar", fmt::format("{}", scalar), "a positive number");
  const double score_cap = read_cap("attn_logit_softcapping", c.score_cap, file);
  if (!c.score_cap && score_cap != 0) file.refuse("attn_logit_softcapping", fmt::format("{}", score_cap), "null");
  config.logits_cap = read_cap("final_logit_softcapping", c.logits_cap, file);
  for (LayerConfig& layer : config.layers) {
    AttentionConfig& a = layer.attention;
    a.output_bias = a.qkv_bias, a.score_cap = score_cap, a.scale = scalar > 0 ? 1 / std::sqrt(scalar) : 0;
  }
  const int64_t window = file.take("sliding_window", kWindow);
  if (file.is_null("sliding_window") || window < 1)
    file.refuse("sliding_window", file.is_null("sliding_window") ? "null" : fmt::format("{}", window),
                "a number of keys");
  const int64_t period = c.period ? *c.period : file.take("sliding_window_pattern", kPeriod);
  if (period < 1) file.refuse("sliding_window_pattern", fmt::format("{}", period), "1 or more");
  read_windows({.window = window, .period = std::max<int64_t>(period, 1), .key = "layer_types"}, config, file, nullptr);
  // The class does not read the older hidden_act, which some files hold as well.
  file.expect("hidden_activation", name_of(Activation::gelu_tanh), name_of(Activation::gelu_tanh));
  file.expect("attention_dropout", 0.0, 0.0);
  file.expect("use_bidirectional_attention", false, false);
  return config;
}

void write_gemma(const GemmaClass& c, const DecoderConfig& config, PublishedKeys& keys) {
  write_sizes(c.names, config, keys);
  const LayerConfig& layer = config.layers.front();
  const AttentionConfig& a = layer.attention;
  keys.set("intermediate_size", layer.feed_forward.hidden_dim);
  keys.set("hidden_activation", name_of(layer.feed_forward.activation));
  keys.set("attention_bias", a.qkv_bias);
  keys.set("query_pre_attn_scalar",
           a.scale > 0 ? static_cast<int64_t>(std::llround(1 / (a.scale * a.scale))) : a.head_dim);
  write_cap("attn_logit_softcapping", a.score_cap, keys);
  write_cap("final_logit_softcapping", config.logits_cap, keys);
  const int64_t window = largest_window(config);
  keys.set("sliding_window", window > 0 ? window : kWindow);
  write_layer_types(config, keys);
}

void read_gemma_keys(const GgufKeys& keys, int64_t window, int64_t period, int64_t layers_of_27b,
                     DecoderConfig& config) {
  make_gemma(config);
  const std::vector<bool> slides = keys.sliding_layers(config.layers.size(), period);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    AttentionConfig& a = config.layers[i].attention;
    a.window = slides[i] ? window : 0;
    const bool is_27b = std::ssize(config.layers) == layers_of_27b;
    a.scale = 1 / std::sqrt(static_cast<double>(is_27b && a.heads > 0 ? config.dim / a.heads : a.head_dim));
  }
}

void write_gemma_keys(const DecoderConfig& config, int64_t period, GgufKeyWriter& keys) {
  const int64_t window = largest_window(config);
  if (window > 0) keys.whole("attention.sliding_window", window);
  std::vector<bool> slides;
  bool is_periodic = true;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    slides.push_back(config.layers[i].attention.window > 0);
    is_periodic = is_periodic && slides[i] == ((static_cast<int64_t>(i) + 1) % period != 0);
  }
  if (window > 0 && !is_periodic) keys.flags("attention.sliding_window_pattern", slides);
}

}  // namespace tutti::models
