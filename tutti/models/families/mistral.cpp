// Mistral: as Llama, with a window of keys in the first version. Source: the published configurations and weights of
// Mistral AI.
#include "tutti/models/family.h"
#include "tutti/models/published_decoder.h"
#include "tutti/models/published_writer.h"

namespace tutti::models {
namespace {

DecoderConfig mistral(const DecoderSizes& sizes, int64_t window) {
  DecoderConfig config = decoder_of("mistral", sizes);
  for (LayerConfig& layer : config.layers) layer.attention.window = window;
  return config;
}

DecoderConfig mistral_7b(const char* flavor, int64_t vocab, double theta, int64_t window) {
  return mistral({.flavor = flavor,
                  .dim = 4096,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 8,
                  .ffn_dim = 14336,
                  .vocab = vocab,
                  .tied_embeddings = false,
                  .rope_theta = theta,
                  .norm_eps = 1e-5},
                 window);
}

std::vector<DecoderConfig> flavors() {
  return {
      mistral({.flavor = "tiny",
               .dim = 32,
               .layers = 2,
               .heads = 2,
               .kv_heads = 1,
               .ffn_dim = 64,
               .vocab = 320,
               .tied_embeddings = false,
               .head_dim = 16,
               .rope_theta = 1e4},
              24),
      mistral({.flavor = "tiny-tp4",
               .dim = 32,
               .layers = 2,
               .heads = 8,
               .kv_heads = 4,
               .ffn_dim = 512,
               .vocab = 2048,
               .tied_embeddings = false},
              24),
      mistral_7b("7B-v0.1", 32000, 1e4, 4096),
      mistral_7b("7B-v0.3", 32768, 1e6, 0),
  };
}

// The defaults of the class MistralConfig of transformers.
constexpr int64_t kFfnDim = 14336, kWindow = 4096;
constexpr PublishedClass kClass{.model_type = "mistral",
                                .architecture = "MistralForCausalLM",
                                .dim = 4096,
                                .layers = 32,
                                .heads = 32,
                                .vocab = 32000,
                                .kv_heads = 8,
                                .head_dim = std::nullopt};

PublishedWindows windows_of(PublishedConfig& file) {
  const std::optional<JsonValue> found = file.find("sliding_window");
  if (file.is_null("sliding_window")) return {.key = "sliding_window", .said = "null"};
  const int64_t window = found ? found->whole() : kWindow;
  return {.window = window, .first = 0, .key = "sliding_window", .said = fmt::format("{}", window)};
}

DecoderConfig read(PublishedConfig& file, const DecoderConfig* model) {
  if (!is_of_class(kClass, file)) return {};
  refuse_quantized(file);
  DecoderConfig config = read_decoder(kClass, file, model);
  read_feed_forward("intermediate_size", kFfnDim, config, file, model);
  read_windows(windows_of(file), config, file, model);
  read_activation(file);
  return config;
}

void write(const DecoderConfig& config, PublishedKeys& keys) {
  write_decoder(kClass, config, keys);
  const LayerConfig& layer = config.layers.front();
  keys.set("intermediate_size", layer.feed_forward.hidden_dim);
  if (layer.attention.window > 0) keys.set("sliding_window", layer.attention.window);
  else keys.set_null("sliding_window");
}

}  // namespace

TUTTI_FAMILY(mistral) = {.flavors = flavors,
                         .model_types = {"mistral"},
                         .read = read,
                         .write = write,
                         .gguf = {{.name = "llama", .is_pair_layout = true, .has_divisors = true, .is_read = false}}};

}  // namespace tutti::models
