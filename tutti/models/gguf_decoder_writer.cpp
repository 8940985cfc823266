#include <algorithm>

#include "tutti/models/gguf_decoder.h"
#include "tutti/models/gguf_keys.h"

namespace tutti::models {
namespace {

constexpr float kNoTurn = 1e30F;  // the divisor of pairs that do not turn, as llama.cpp's converter writes it

void write_rope_keys(const RopeConfig& rope, GgufKeyWriter& keys) {
  keys.number("rope.freq_base", rope.theta);
  if (rope.type != RopeType::linear && rope.type != RopeType::yarn) return;  // llama3 stands in rope_freqs.weight
  keys.text("rope.scaling.type", name_of(rope.type));
  keys.number("rope.scaling.factor", rope.factor);
  if (rope.type == RopeType::linear) return;
  keys.whole("rope.scaling.original_context_length", rope.original_positions);
  keys.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
  keys.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
}

}  // namespace

void write_gguf_decoder(const DecoderConfig& config, const GgufArchitecture& architecture, int64_t positions,
                        ModelMetadata& metadata) {
  GgufKeyWriter keys(architecture.name, metadata);
  const auto with_experts = std::find_if(config.layers.begin(), config.layers.end(),
                                         [](const LayerConfig& layer) { return layer.feed_forward.experts > 0; });
  const AttentionConfig& a = config.layers.front().attention;
  const FeedForwardConfig& f = (architecture.has_experts ? *with_experts : config.layers.front()).feed_forward;
  keys.whole("vocab_size", config.vocab);
  keys.whole("context_length", positions);
  keys.whole("embedding_length", config.dim);
  keys.whole("block_count", std::ssize(config.layers));
  keys.whole("attention.head_count", a.heads);
  std::vector<int64_t> heads, features;
  for (const LayerConfig& layer : config.layers)
    heads.push_back(layer.attention.kv_heads), features.push_back(layer.feed_forward.hidden_dim);
  if (!architecture.sizes_by_layer) heads.assign(1, a.kv_heads), features.assign(1, f.hidden_dim);
  keys.of_layers("attention.head_count_kv", heads);
  keys.whole("attention.key_length", a.head_dim);
  keys.whole("attention.value_length", a.head_dim);
  keys.number("attention.layer_norm_rms_epsilon", config.norm_eps);
  keys.whole("rope.dimension_count", a.head_dim);
  // Layers with a window may turn by other angles, which have keys of their own.
  const auto full = std::find_if(config.layers.begin(), config.layers.end(),
                                 [](const LayerConfig& layer) { return layer.attention.window == 0; });
  write_rope_keys(full == config.layers.end() ? a.rope : full->attention.rope, keys);
  if (architecture.write != nullptr) architecture.write(config, keys);
  if (!architecture.has_experts) return keys.of_layers("feed_forward_length", features);
  keys.whole("expert_count", f.experts);
  keys.whole("expert_used_count", f.active_experts);
  keys.whole(architecture.expert_length, f.hidden_dim);
}

std::vector<float> gguf_divisors(const DecoderConfig& config, const GgufArchitecture& architecture) {
  const auto full = std::find_if(config.layers.begin(), config.layers.end(),
                                 [](const LayerConfig& layer) { return layer.attention.window == 0; });
  const bool is_of_full = architecture.needs_divisors && full != config.layers.end();
  const AttentionConfig& a = (is_of_full ? *full : config.layers.front()).attention;
  if (!architecture.needs_divisors &&
      (!architecture.has_divisors || (a.rope.type != RopeType::llama3 && a.rope.divisors.empty())))
    return {};
  const std::vector<double> scaled = rope_frequencies(a.rope, a.head_dim);
  const std::vector<double> plain = rope_frequencies({.theta = a.rope.theta}, a.head_dim);
  std::vector<float> divisors;
  for (size_t i = 0; i < plain.size(); ++i)
    divisors.push_back(scaled[i] == 0 ? kNoTurn : static_cast<float>(plain[i] / scaled[i]));
  return divisors;
}

}  // namespace tutti::models
