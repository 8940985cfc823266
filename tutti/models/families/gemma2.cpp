// Gemma 2: scores and logits under caps, and windows in every second layer. Source: the published configurations and
// weights of Google.
#include <cmath>

#include "tutti/models/decoder_difference.h"
#include "tutti/models/family.h"
#include "tutti/models/published_gemma.h"

namespace tutti::models {
namespace {

constexpr double kScoreCap = 50, kLogitsCap = 30;
constexpr int64_t kWindow = 4096, kPeriod = 2, kLayersOf27b = 46;

DecoderConfig gemma2(const DecoderSizes& sizes, double query_scalar, int64_t window) {
  DecoderConfig config = decoder_of("gemma2", sizes);
  make_gemma(config);
  config.logits_cap = kLogitsCap;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    AttentionConfig& a = config.layers[i].attention;
    a.scale = 1 / std::sqrt(query_scalar), a.score_cap = kScoreCap;
    if (i % 2 == 0) a.window = window;
  }
  return config;
}

DecoderConfig published(const char* flavor, int64_t dim, int64_t ffn_dim, int64_t layers, int64_t heads,
                        int64_t kv_heads, int64_t head_dim, double query_scalar) {
  return gemma2({.flavor = flavor,
                 .dim = dim,
                 .layers = layers,
                 .heads = heads,
                 .kv_heads = kv_heads,
                 .ffn_dim = ffn_dim,
                 .vocab = 256000,
                 .tied_embeddings = true,
                 .head_dim = head_dim,
                 .rope_theta = 1e4},
                query_scalar, kWindow);
}

std::vector<DecoderConfig> flavors() {
  return {
      gemma2({.flavor = "tiny",
              .dim = 32,
              .layers = 2,
              .heads = 2,
              .kv_heads = 1,
              .ffn_dim = 64,
              .vocab = 320,
              .tied_embeddings = true,
              .head_dim = 16,
              .rope_theta = 1e4},
             16, 24),
      gemma2({.flavor = "tiny-tp4",
              .dim = 32,
              .layers = 2,
              .heads = 8,
              .kv_heads = 4,
              .ffn_dim = 512,
              .vocab = 2048,
              .tied_embeddings = true,
              .rope_theta = 1e4},
             128, 24),
      published("2B", 2304, 9216, 26, 8, 4, 256, 256),
      published("9B", 3584, 14336, 42, 16, 8, 256, 256),
      published("27B", 4608, 36864, 46, 32, 16, 128, 144),
  };
}

// The class Gemma2Config of transformers.
constexpr GemmaClass kClass{.names = {.model_type = "gemma2",
                                      .architecture = "Gemma2ForCausalLM",
                                      .dim = 2304,
                                      .layers = 26,
                                      .heads = 8,
                                      .vocab = 256000,
                                      .kv_heads = 4,
                                      .head_dim = 256,
                                      .tied = true},
                            .score_cap = kScoreCap,
                            .logits_cap = kLogitsCap,
                            .period = kPeriod};

DecoderConfig read(PublishedConfig& file, const DecoderConfig* model) {
  if (!is_of_class(kClass.names, file)) return {};
  DecoderConfig config = read_gemma(kClass, file);
  const RopeConfig rope = read_rope(kClass.names.theta, file, nullptr);
  for (LayerConfig& layer : config.layers) layer.attention.rope = rope;
  if (model != nullptr) note_differences(config, *model, file);
  return config;
}

void write(const DecoderConfig& config, PublishedKeys& keys) {
  const AttentionConfig& a = config.layers.front().attention;
  write_gemma(kClass, config, keys);
  write_rope(a.rope, a.head_dim, keys);
}

void read_keys(const GgufKeys& keys, DecoderConfig& config) {
  read_gemma_keys(keys, keys.whole("attention.sliding_window", kWindow), kPeriod, kLayersOf27b, config);
  config.logits_cap = keys.number("final_logit_softcapping", kLogitsCap);
  const double cap = keys.number("attn_logit_softcapping", kScoreCap);
  for (LayerConfig& layer : config.layers) layer.attention.score_cap = cap;
}

void write_keys(const DecoderConfig& config, GgufKeyWriter& keys) {
  write_gemma_keys(config, kPeriod, keys);
  keys.number("attn_logit_softcapping", config.layers.front().attention.score_cap);
  keys.number("final_logit_softcapping", config.logits_cap);
}

}  // namespace

TUTTI_FAMILY(gemma2) = {.flavors = flavors,
                        .model_types = {"gemma2"},
                        .read = read,
                        .write = write,
                        .gguf = {{.name = "gemma2", .read = read_keys, .write = write_keys}}};

}  // namespace tutti::models
