#include "tutti/models/published_decoder.h"

#include <algorithm>

#include "tutti/models/published_rope.h"

namespace tutti::models {
namespace {

template <class T>
const T* part(const DecoderConfig* model, T DecoderConfig::* member) {
  return model == nullptr ? nullptr : &(model->*member);
}

template <class T>
const T* attention_part(const DecoderConfig* model, T AttentionConfig::* member) {
  return model == nullptr ? nullptr : &(model->layers.front().attention.*member);
}

template <class T>
const T* feed_forward_part(const DecoderConfig* model, T FeedForwardConfig::* member) {
  return model == nullptr ? nullptr : &(model->layers.front().feed_forward.*member);
}

// "Qwen3MoeForCausalLM" -> "qwen3_moe": words begin with a capital letter.
std::string type_of_architecture(std::string_view architecture) {
  std::string type;
  for (const char c : architecture.substr(0, architecture.find("For"))) {
    const bool is_capital = c >= 'A' && c <= 'Z';
    if (is_capital && !type.empty()) type += '_';
    type += is_capital ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return type;
}

std::string windows_text(const DecoderConfig& config) {
  std::vector<std::string> layers;
  int64_t window = 0;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (config.layers[i].attention.window == 0) continue;
    layers.push_back(std::to_string(i)), window = config.layers[i].attention.window;
  }
  if (layers.empty()) return "full attention in every layer";
  return fmt::format("a window of {} keys in layers {}", window, joined(layers, ", "));
}

bool has_windows_of(const DecoderConfig& a, const DecoderConfig& b) {
  return std::equal(
      a.layers.begin(), a.layers.end(), b.layers.begin(), b.layers.end(),
      [](const LayerConfig& x, const LayerConfig& y) { return x.attention.window == y.attention.window; });
}

}  // namespace

std::optional<std::string> model_type_of(PublishedConfig& file) {
  if (const std::optional<JsonValue> type = file.find("model_type")) return std::string(type->text());
  const std::optional<JsonValue> architectures = file.find("architectures");
  if (!architectures || architectures->size() != 1) return std::nullopt;
  return type_of_architecture((*architectures->begin()).value.text());
}

bool is_of_class(const PublishedClass& c, PublishedConfig& file) {
  const std::optional<JsonValue> type = file.find("model_type");
  // A nested text model that gives its type need not be of the architecture of the whole.
  const std::optional<JsonValue> architectures = type && file.find_beside_sizes("model_type")
                                                     ? file.find_beside_sizes("architectures")
                                                     : file.find("architectures");
  const bool is_type = !type || type->text() == c.model_type;
  const bool is_architecture =
      !architectures || (architectures->size() == 1 && (*architectures->begin()).value.text() == c.architecture);
  if (!is_architecture)
    file.refuse("architectures", shown_list(*architectures), fmt::format("[\"{}\"]", c.architecture));
  if (!is_type || (!type && !architectures))
    file.refuse("model_type", type ? type->shown() : "not given, nor are architectures",
                fmt::format("\"{}\"", c.model_type));
  return is_type && is_architecture && (type || architectures);
}

void refuse_quantized(PublishedConfig& file) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    const std::optional<JsonValue> found = file.find(key);
    if (!found) continue;
    const std::optional<JsonValue> method = found->is_object() ? found->find_set("quant_method") : std::nullopt;
    if (method && method->shown() == fmt::format("\"{}\"", kOwnQuantization)) continue;
    file.refuse(key, method ? fmt::format("quant_method = {}", method->shown()) : found->shown(), "weights of floats");
  }
}

DecoderConfig read_sizes(const PublishedClass& c, PublishedConfig& file, const DecoderConfig* model) {
  const int64_t layers_of_model = model == nullptr ? 0 : std::ssize(model->layers);
  DecoderConfig config;
  config.dim = file.take("hidden_size", c.dim, part(model, &DecoderConfig::dim));
  const int64_t layers = file.take("num_hidden_layers", c.layers, model == nullptr ? nullptr : &layers_of_model);
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.heads = file.take("num_attention_heads", c.heads, attention_part(model, &AttentionConfig::heads));
  const int64_t kv_default = file.is_null("num_key_value_heads") ? a.heads : c.kv_heads.value_or(a.heads);
  a.kv_heads = file.take("num_key_value_heads", kv_default, attention_part(model, &AttentionConfig::kv_heads));
  const bool has_default_head = c.head_dim && !file.is_null("head_dim");
  const int64_t divided = a.heads > 0 ? config.dim / a.heads : c.head_dim.value_or(0);
  a.head_dim = file.take("head_dim", has_default_head ? *c.head_dim : divided,
                         attention_part(model, &AttentionConfig::head_dim));
  config.vocab = file.take("vocab_size", c.vocab, part(model, &DecoderConfig::vocab));
  config.tied_embeddings = file.take("tie_word_embeddings", c.tied, part(model, &DecoderConfig::tied_embeddings));
  config.norm_eps = file.take("rms_norm_eps", c.eps, part(model, &DecoderConfig::norm_eps));
  // A file may say any number; a model of more layers than a file can hold is refused before memory is taken for it.
  constexpr int64_t most_layers = 100'000;
  if (layers < 1 || layers > most_layers)
    file.refuse("num_hidden_layers", fmt::format("{}", layers), fmt::format("1 to {}", most_layers));
  else config.layers.assign(static_cast<size_t>(layers), layer);
  return config;
}

DecoderConfig read_decoder(const PublishedClass& c, PublishedConfig& file, const DecoderConfig* model) {
  DecoderConfig config = read_sizes(c, file, model);
  const RopeConfig rope = read_rope(c.theta, file, attention_part(model, &AttentionConfig::rope));
  for (LayerConfig& layer : config.layers) layer.attention.rope = rope;
  return config;
}

void read_feed_forward(const char* key, int64_t by_default, DecoderConfig& config, PublishedConfig& file,
                       const DecoderConfig* model) {
  const int64_t hidden_dim = file.take(key, by_default, feed_forward_part(model, &FeedForwardConfig::hidden_dim));
  for (LayerConfig& layer : config.layers) layer.feed_forward.hidden_dim = hidden_dim;
}

void read_flag(const char* key, bool by_default, bool AttentionConfig::* member, DecoderConfig& config,
               PublishedConfig& file, const DecoderConfig* model) {
  const bool value = file.take(key, by_default, attention_part(model, member));
  for (LayerConfig& layer : config.layers) layer.attention.*member = value;
}

void read_flag(const char* key, bool by_default, bool FeedForwardConfig::* member, DecoderConfig& config,
               PublishedConfig& file, const DecoderConfig* model) {
  const bool value = file.take(key, by_default, feed_forward_part(model, member));
  for (LayerConfig& layer : config.layers) layer.feed_forward.*member = value;
}

void read_activation(PublishedConfig& file) {
  const std::optional<JsonValue> act = file.find("hidden_act");
  if (!act || act->text() != "swish")
    file.expect("hidden_act", std::string("silu"), std::string("silu"));  // two names of one function
  file.expect("attention_dropout", 0.0, 0.0);
}

PublishedWindows windows_from_a_layer_on(int64_t window, std::optional<int64_t> first, PublishedConfig& file) {
  const std::optional<JsonValue> uses = file.find("use_sliding_window");
  if (!uses || !uses->boolean() || file.is_null("sliding_window")) return {.key = "layer_types"};
  PublishedWindows windows{.window = file.take("sliding_window", window), .key = "use_sliding_window"};
  windows.beats_types = !first;
  windows.first = first ? file.take("max_window_layers", *first) : 0;
  windows.said = fmt::format("true, with sliding_window = {} from layer {} on", windows.window, *windows.first);
  return windows;
}

void read_windows(const PublishedWindows& windows, DecoderConfig& config, PublishedConfig& file,
                  const DecoderConfig* model) {
  const std::string shown = model == nullptr ? "" : windows_text(*model);
  std::string key = windows.key, said = windows.said;
  const std::optional<JsonValue> types = file.find("layer_types");
  if (types) {
    if (types->size() != config.layers.size())
      return file.refuse("layer_types", fmt::format("{} entries", types->size()),
                         fmt::format("{} layers", model == nullptr ? config.layers.size() : model->layers.size()));
    size_t i = 0;
    for (const auto& [_, type] : *types) {
      const bool slides = type.text() == "sliding_attention";
      if (!slides && type.text() != "full_attention")
        return file.refuse("layer_types", type.shown(), "\"full_attention\" and \"sliding_attention\"");
      if (slides && windows.window <= 0)
        return file.refuse("layer_types", type.shown(),
                           model == nullptr ? "no window for it, as sliding_window gives none" : shown);
      config.layers[i++].attention.window = slides ? windows.window : 0;
      if (slides && key != "layer_types") key = "layer_types", said = type.shown();
    }
  }
  for (size_t i = 0; windows.period > 0 && !types && i < config.layers.size(); ++i)
    config.layers[i].attention.window = (static_cast<int64_t>(i) + 1) % windows.period == 0 ? 0 : windows.window;
  if (windows.first && (!types || windows.beats_types)) {
    for (size_t i = static_cast<size_t>(std::max<int64_t>(*windows.first, 0)); i < config.layers.size(); ++i)
      config.layers[i].attention.window = windows.window;
  }
  if (model != nullptr && config.layers.size() == model->layers.size() && !has_windows_of(config, *model))
    file.refuse(key, said, shown);
}

}  // namespace tutti::models
