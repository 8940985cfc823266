// Gemma 3, the text model: norms of queries and keys, windows in five of six layers, which turn by another base.
// Source: the published configurations and weights of Google.
#include <cmath>

#include "tutti/models/decoder_difference.h"
#include "tutti/models/family.h"
#include "tutti/models/published_gemma.h"

namespace tutti::models {
namespace {

constexpr double kTheta = 1e6, kSlidingTheta = 1e4;
constexpr int64_t kPeriod = 6, kLayersOf27b = 62;

// `factor` stretches the positions of the layers that see all keys.
DecoderConfig gemma3(const DecoderSizes& sizes, double query_scalar, int64_t window, double factor, int64_t period) {
  DecoderConfig config = decoder_of("gemma3", sizes);
  make_gemma(config);
  for (size_t i = 0; i < config.layers.size(); ++i) {
    AttentionConfig& a = config.layers[i].attention;
    a.query_key_norms = true, a.scale = 1 / std::sqrt(query_scalar);
    if ((static_cast<int64_t>(i) + 1) % period != 0) a.window = window, a.rope.theta = kSlidingTheta;
    else if (factor > 1) a.rope = {.type = RopeType::linear, .theta = kTheta, .factor = factor};
  }
  return config;
}

DecoderConfig published(const char* flavor, int64_t dim, int64_t ffn_dim, int64_t layers, int64_t heads,
                        int64_t kv_heads, int64_t head_dim, double query_scalar) {
  const bool is_small = dim <= 1152;  // the larger ones see pictures as well
  return gemma3({.flavor = flavor,
                 .dim = dim,
                 .layers = layers,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .ffn_dim = ffn_dim,
                 .vocab = is_small ? 262144 : 262208,
                 .tied_embeddings = true,
                 .head_dim = head_dim},
                query_scalar, is_small ? 512 : 1024, is_small ? 1 : 8, kPeriod);
}

std::vector<DecoderConfig> flavors() {
  return {
      gemma3({.flavor = "tiny",
              .dim = 32,
              .layers = 2,
              .heads = 2,
              .kv_heads = 1,
              .ffn_dim = 64,
              .vocab = 320,
              .tied_embeddings = true,
              .head_dim = 16},
             16, 24, 1, 2),
      gemma3({.flavor = "tiny-tp4",
              .dim = 32,
              .layers = 2,
              .heads = 8,
              .kv_heads = 4,
              .ffn_dim = 512,
              .vocab = 2048,
              .tied_embeddings = true},
             128, 24, 8, 2),
      published("270M", 640, 2048, 18, 4, 1, 256, 256),
      published("1B", 1152, 6912, 26, 4, 1, 256, 256),
      published("4B", 2560, 10240, 34, 8, 4, 256, 256),
      published("12B", 3840, 15360, 48, 16, 8, 256, 256),
      published("27B", 5376, 21504, 62, 32, 16, 128, 168),
  };
}

// The class Gemma3TextConfig of transformers.
constexpr GemmaClass kClass{.names = {.model_type = "gemma3_text",
                                      .architecture = "Gemma3ForCausalLM",
                                      .dim = 2304,
                                      .layers = 26,
                                      .heads = 8,
                                      .vocab = 262208,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .tied = true}};

bool slides(const LayerConfig& layer) { return layer.attention.window > 0; }

DecoderConfig read(PublishedConfig& file, const DecoderConfig* model) {
  if (!is_of_class(kClass.names, file)) return {};
  DecoderConfig config = read_gemma(kClass, file);
  const RopeConfig full = read_rope_of_kind({"full_attention", "rope_theta", kTheta, true}, file);
  const RopeConfig sliding =
      read_rope_of_kind({"sliding_attention", "rope_local_base_freq", kSlidingTheta, false}, file);
  for (LayerConfig& layer : config.layers) {
    layer.attention.rope = slides(layer) ? sliding : full;
    layer.attention.query_key_norms = true;
  }
  if (model != nullptr) note_differences(config, *model, file);
  return config;
}

void write(const DecoderConfig& config, PublishedKeys& keys) {
  write_gemma(kClass, config, keys);
  RopeConfig full{.theta = kTheta}, sliding{.theta = kSlidingTheta};
  for (const LayerConfig& layer : config.layers) (slides(layer) ? sliding : full) = layer.attention.rope;
  PublishedKeys of_full = rope_keys(full), of_sliding = rope_keys(sliding), kinds;
  if (full.type == RopeType::plain) keys.set_null("rope_scaling");
  else keys.set("rope_scaling", of_full);
  keys.set("rope_theta", full.theta), of_full.set("rope_theta", full.theta);
  keys.set("rope_local_base_freq", sliding.theta), of_sliding.set("rope_theta", sliding.theta);
  kinds.set("full_attention", of_full), kinds.set("sliding_attention", of_sliding);
  keys.set("rope_parameters", kinds);
}

// The shared keys describe the angles of the layers that see all keys.
void read_keys(const GgufKeys& keys, DecoderConfig& config) {
  const int64_t window = keys.whole("attention.sliding_window", 0);
  read_gemma_keys(keys, window, kPeriod, kLayersOf27b, config);
  config.logits_cap = keys.number("final_logit_softcapping", 0);
  const double theta = keys.positive("rope.freq_base_swa", kSlidingTheta);
  for (LayerConfig& layer : config.layers) {
    if (slides(layer)) layer.attention.rope = {.theta = theta};
  }
}

void write_keys(const DecoderConfig& config, GgufKeyWriter& keys) {
  write_gemma_keys(config, kPeriod, keys);
  if (config.logits_cap > 0) keys.number("final_logit_softcapping", config.logits_cap);
  for (const LayerConfig& layer : config.layers) {
    if (slides(layer)) keys.number("rope.freq_base_swa", layer.attention.rope.theta);
  }
}

}  // namespace

TUTTI_FAMILY(gemma3) = {.flavors = flavors,
                        .model_types = {"gemma3_text"},
                        .read = read,
                        .write = write,
                        .gguf = {{.name = "gemma3", .read = read_keys, .write = write_keys}}};

}  // namespace tutti::models
