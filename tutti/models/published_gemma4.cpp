#include "tutti/models/published_gemma4.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "tutti/models/decoder_difference.h"

namespace tutti::models {
namespace {

// The defaults of the class Gemma4TextConfig of transformers.
constexpr PublishedClass kGemma4Class{.model_type = "gemma4_text",
                                      .architecture = "Gemma4ForCausalLM",
                                      .dim = 2304,
                                      .layers = 30,
                                      .heads = 8,
                                      .vocab = 262144,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .tied = true};
constexpr int64_t kGemma4FfnDim = 9216, kSlidingWindow = 512, kLayersOfPeriod = 6, kFullHeadDim = 512,
                  kPerLayerInputs = 256;
constexpr const char *kFull = "full_attention", *kSliding = "sliding_attention";

bool slides(const LayerConfig& layer) { return layer.attention.window > 0; }

// The heads of layers that see all keys, unless per_layer_config has them.
void read_full_heads(DecoderConfig& config, PublishedConfig& file) {
  const bool k_eq_v = file.take("attention_k_eq_v", false);
  const int64_t head_dim = file.take("global_head_dim", kFullHeadDim);
  const std::optional<JsonValue> kv_heads = file.find("num_global_key_value_heads");
  for (LayerConfig& layer : config.layers) {
    if (slides(layer)) continue;
    AttentionConfig& a = layer.attention;
    a.keys_are_values = k_eq_v, a.head_dim = head_dim;
    if (k_eq_v && kv_heads) a.kv_heads = kv_heads->whole();
  }
}

// {"5": {"head_dim": 512, "num_key_value_heads": 4}}: what differs in a layer from the keys beside.
void read_layers_that_differ(const JsonValue& layers, int64_t head_dim, int64_t kv_heads, DecoderConfig& config,
                             PublishedConfig& file) {
  for (LayerConfig& layer : config.layers) layer.attention.head_dim = head_dim, layer.attention.kv_heads = kv_heads;
  for (const auto& [key, values] : layers) {
    size_t i = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), i);
    const std::string name = fmt::format("per_layer_config.{}", key);
    if (error != std::errc() || end != key.data() + key.size() || i >= config.layers.size()) {
      file.refuse(name, values.shown(), fmt::format("one of {} layers", config.layers.size()));
      continue;
    }
    for (const auto& [what, value] : values) {
      AttentionConfig& a = config.layers[i].attention;
      if (what == "head_dim") a.head_dim = value.whole();
      else if (what == "num_key_value_heads") a.kv_heads = value.whole();
      else file.refuse(fmt::format("{}.{}", name, what), value.shown(), "head_dim and num_key_value_heads alone");
    }
  }
}

void read_layer_kinds(DecoderConfig& config, PublishedConfig& file) {
  const int64_t window = file.take("sliding_window", kSlidingWindow);
  if (file.is_null("sliding_window") || window < 1)
    file.refuse("sliding_window", file.is_null("sliding_window") ? "null" : fmt::format("{}", window),
                "a number of keys");
  read_windows({.window = window, .period = kLayersOfPeriod, .key = "layer_types"}, config, file, nullptr);
  if (!config.layers.empty()) config.layers.back().attention.window = 0;  // the class makes the last layer see all keys
}

// An object has the angles of both kinds of layers, and nothing beside them.
void check_kinds_of_angles(const JsonValue& angles, PublishedConfig& file) {
  if (!angles.is_object()) angles.fail("is {}, expected an object", angles.shown());
  for (const char* kind : {kFull, kSliding}) {
    if (!angles.find_set(kind))
      file.refuse(fmt::format("rope_parameters.{}", kind), "not given", "an object, as rope_parameters is given");
  }
  for (const auto& [key, value] : angles) {
    if (key != kFull && key != kSliding && !value.is_null())
      file.refuse(fmt::format("rope_parameters.{}", key), value.shown(),
                  fmt::format("{} and {} alone", kFull, kSliding));
  }
}

void read_angles(DecoderConfig& config, PublishedConfig& file) {
  RopeConfig full = gemma4_full_rope(), sliding = gemma4_sliding_rope();
  if (const std::optional<JsonValue> angles = file.find("rope_parameters")) {
    check_kinds_of_angles(*angles, file);
    constexpr double theta = 1e4;  // where the object of a kind gives none
    full = read_rope_of_kind({kFull, "rope_theta", theta, false}, file);
    sliding = read_rope_of_kind({kSliding, "rope_theta", theta, false}, file);
  }
  if (const std::optional<JsonValue> older = file.find("rope_scaling"))
    file.refuse("rope_scaling", older->shown(), "null, as rope_parameters has the angles");
  for (LayerConfig& layer : config.layers) layer.attention.rope = slides(layer) ? sliding : full;
}

void read_shared_keys(DecoderConfig& config, PublishedConfig& file) {
  const int64_t shared = file.take("num_kv_shared_layers", int64_t{0});
  const int64_t layers = std::ssize(config.layers);
  if (shared < 0 || shared >= std::max<int64_t>(layers, 1))
    return file.refuse("num_kv_shared_layers", fmt::format("{}", shared),
                       fmt::format("0 to {} of {} layers", std::max<int64_t>(layers - 1, 0), layers));
  if (const std::optional<size_t> alone = share_keys(shared, config))
    file.refuse("num_kv_shared_layers", fmt::format("{}", shared),
                fmt::format("fewer: layer {} has no layer of its kind before them", *alone));
  if (!file.take("use_double_wide_mlp", false)) return;
  for (LayerConfig& layer : config.layers) {
    if (layer.attention.shared_layer) layer.feed_forward.hidden_dim *= 2;
  }
}

void read_experts(DecoderConfig& config, PublishedConfig& file) {
  if (!file.take("enable_moe_block", false)) return;
  FeedForwardConfig experts{.activation = Activation::gelu_tanh, .scaled_router = true};
  for (const auto& [key, member] : {std::pair("num_experts", &FeedForwardConfig::experts),
                                    {"top_k_experts", &FeedForwardConfig::active_experts},
                                    {"moe_intermediate_size", &FeedForwardConfig::hidden_dim}}) {
    const std::optional<JsonValue> found = file.find(key);
    if (!found) file.refuse(key, "not given", "a number, as enable_moe_block is true");
    else experts.*member = found->whole(1);
  }
  for (LayerConfig& layer : config.layers) layer.experts_beside = experts;
}

void read_per_layer_inputs(DecoderConfig& config, PublishedConfig& file) {
  config.per_layer_inputs = file.take("hidden_size_per_layer_input", kPerLayerInputs);
  if (config.per_layer_inputs > 0) file.expect("vocab_size_per_layer_input", config.vocab, kGemma4Class.vocab);
}

// The heads of a kind of layers; those of the others where there is none.
const AttentionConfig& attention_of(const DecoderConfig& config, bool that_slides) {
  const auto found = std::find_if(config.layers.begin(), config.layers.end(),
                                  [&](const LayerConfig& layer) { return slides(layer) == that_slides; });
  return (found == config.layers.end() ? config.layers.front() : *found).attention;
}

void write_experts(const DecoderConfig& config, PublishedKeys& keys) {
  const FeedForwardConfig& experts = config.layers.front().experts_beside;
  keys.set("enable_moe_block", experts.experts > 0);
  for (const auto& [key, value] : {std::pair("num_experts", experts.experts),
                                   {"top_k_experts", experts.active_experts},
                                   {"moe_intermediate_size", experts.hidden_dim}}) {
    if (experts.experts > 0) keys.set(key, value);
    else keys.set_null(key);
  }
}

}  // namespace

RopeConfig gemma4_full_rope() { return {.type = RopeType::proportional, .theta = 1e6, .rotary_factor = 0.25}; }
RopeConfig gemma4_sliding_rope() { return {.theta = 1e4}; }

void make_gemma4(DecoderConfig& config) {
  make_gemma(config);
  config.zero_centered_norms = false;
  config.layer_scalars = true;
  for (LayerConfig& layer : config.layers) {
    AttentionConfig& a = layer.attention;
    a.query_key_norms = a.value_norms = true, a.scale = 1;
  }
}

std::optional<size_t> share_keys(int64_t count, DecoderConfig& config) {
  const size_t first = config.layers.size() - static_cast<size_t>(count);
  std::map<int64_t, size_t> last_of_window;
  for (size_t i = 0; i < first; ++i) last_of_window[config.layers[i].attention.window] = i;
  std::optional<size_t> alone;
  for (size_t i = first; i < config.layers.size(); ++i) {
    AttentionConfig& a = config.layers[i].attention;
    const auto found = last_of_window.find(a.window);
    if (found == last_of_window.end()) {
      if (!alone) alone = i;
      continue;
    }
    const AttentionConfig& of = config.layers[found->second].attention;
    a.shared_layer = static_cast<int64_t>(found->second);
    a.keys_are_values = of.keys_are_values, a.value_norms = of.value_norms;  // the layer computes neither
  }
  return alone;
}

int64_t layers_that_share_keys(const DecoderConfig& config) {
  return std::count_if(config.layers.begin(), config.layers.end(),
                       [](const LayerConfig& layer) { return layer.attention.shared_layer.has_value(); });
}

DecoderConfig read_gemma4(PublishedConfig& file, const DecoderConfig* model) {
  if (!is_of_class(kGemma4Class, file)) return {};
  refuse_quantized(file);
  DecoderConfig config = read_sizes(kGemma4Class, file, nullptr);
  if (config.layers.empty()) return config;
  make_gemma4(config);
  read_feed_forward("intermediate_size", kGemma4FfnDim, config, file, nullptr);
  read_flag("attention_bias", false, &AttentionConfig::qkv_bias, config, file, nullptr);
  for (LayerConfig& layer : config.layers) layer.attention.output_bias = layer.attention.qkv_bias;
  read_layer_kinds(config, file);
  const AttentionConfig of_all = config.layers.front().attention;
  read_full_heads(config, file);
  if (const std::optional<JsonValue> layers = file.find("per_layer_config"))
    read_layers_that_differ(*layers, of_all.head_dim, of_all.kv_heads, config, file);
  read_angles(config, file);
  read_shared_keys(config, file);
  read_per_layer_inputs(config, file);
  read_experts(config, file);
  config.logits_cap = read_cap("final_logit_softcapping", std::nullopt, file);
  file.expect("hidden_activation", name_of(Activation::gelu_tanh), name_of(Activation::gelu_tanh));
  file.expect("attention_dropout", 0.0, 0.0);
  // Tokens of pictures see each other in both directions, those of texts do not.
  const std::optional<JsonValue> both_ways = file.find("use_bidirectional_attention");
  if (both_ways && !(both_ways->is_text() && both_ways->text() == "vision"))
    file.refuse("use_bidirectional_attention", both_ways->shown(), "null or \"vision\"");
  if (model != nullptr) note_differences(config, *model, file);
  return config;
}

void write_gemma4(const DecoderConfig& config, PublishedKeys& keys) {
  write_sizes(kGemma4Class, config, keys);
  const AttentionConfig &sliding = attention_of(config, true), &full = attention_of(config, false);
  const LayerConfig& first = config.layers.front();
  keys.set("num_key_value_heads", sliding.kv_heads);
  keys.set("head_dim", sliding.head_dim);
  keys.set("global_head_dim", full.head_dim);
  keys.set("attention_k_eq_v", full.keys_are_values);
  if (full.keys_are_values) keys.set("num_global_key_value_heads", full.kv_heads);
  else keys.set_null("num_global_key_value_heads");
  keys.set("attention_bias", first.attention.qkv_bias);
  keys.set("intermediate_size", first.feed_forward.hidden_dim);
  keys.set("hidden_activation", name_of(first.feed_forward.activation));
  write_cap("final_logit_softcapping", config.logits_cap, keys);
  const int64_t window = largest_window(config), shared = layers_that_share_keys(config);
  keys.set("sliding_window", window > 0 ? window : kSlidingWindow);
  write_layer_types(config, keys);
  keys.set("num_kv_shared_layers", shared);
  keys.set("use_double_wide_mlp",
           shared > 0 && config.layers.back().feed_forward.hidden_dim != first.feed_forward.hidden_dim);
  keys.set("hidden_size_per_layer_input", config.per_layer_inputs);
  keys.set("vocab_size_per_layer_input", config.vocab);
  write_experts(config, keys);
  PublishedKeys kinds;
  for (const auto& [kind, a] : {std::pair(kFull, &full), {kSliding, &sliding}}) {
    PublishedKeys angles = rope_keys(a->rope);
    angles.set("rope_theta", a->rope.theta);
    kinds.set(kind, angles);
  }
  keys.set("rope_parameters", kinds);
}

}  // namespace tutti::models
