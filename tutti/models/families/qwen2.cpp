// Qwen2 and Qwen2.5: queries, keys and values have biases. Source: the published configurations and weights of Qwen2.5.
#include "tutti/models/family.h"
#include "tutti/models/published_decoder.h"
#include "tutti/models/published_writer.h"

namespace tutti::models {
namespace {

DecoderConfig qwen2(const DecoderSizes& sizes) {
  DecoderConfig config = decoder_of("qwen2", sizes);
  for (LayerConfig& layer : config.layers) layer.attention.qkv_bias = true;
  return config;
}

DecoderConfig qwen25(const char* flavor, int64_t dim, int64_t ffn_dim, int64_t layers, int64_t heads, int64_t kv_heads,
                     int64_t vocab, bool tied, double eps) {
  return qwen2({.flavor = flavor,
                .dim = dim,
                .layers = layers,
                .heads = heads,
                .kv_heads = kv_heads,
                .ffn_dim = ffn_dim,
                .vocab = vocab,
                .tied_embeddings = tied,
                .head_dim = dim / heads,
                .norm_eps = eps});
}

std::vector<DecoderConfig> flavors() {
  return {
      qwen2({.flavor = "tiny",
             .dim = 32,
             .layers = 2,
             .heads = 2,
             .kv_heads = 1,
             .ffn_dim = 64,
             .vocab = 320,
             .tied_embeddings = true,
             .head_dim = 16}),
      qwen2({.flavor = "tiny-tp4",
             .dim = 32,
             .layers = 2,
             .heads = 8,
             .kv_heads = 4,
             .ffn_dim = 512,
             .vocab = 2048,
             .tied_embeddings = true}),
      qwen25("2.5-0.5B", 896, 4864, 24, 14, 2, 151936, true, 1e-6),
      qwen25("2.5-1.5B", 1536, 8960, 28, 12, 2, 151936, true, 1e-6),
      qwen25("2.5-3B", 2048, 11008, 36, 16, 2, 151936, true, 1e-6),
      qwen25("2.5-7B", 3584, 18944, 28, 28, 4, 152064, false, 1e-6),
      qwen25("2.5-14B", 5120, 13824, 48, 40, 8, 152064, false, 1e-5),
      qwen25("2.5-32B", 5120, 27648, 64, 40, 8, 152064, false, 1e-5),
      qwen25("2.5-72B", 8192, 29568, 80, 64, 8, 152064, false, 1e-5),
  };
}

// The defaults of the class Qwen2Config of transformers.
constexpr int64_t kFfnDim = 22016, kFirstSlidingLayer = 28, kWindow = 4096;
constexpr PublishedClass kClass{.model_type = "qwen2",
                                .architecture = "Qwen2ForCausalLM",
                                .dim = 4096,
                                .layers = 32,
                                .heads = 32,
                                .vocab = 151936,
                                .kv_heads = 32,
                                .head_dim = std::nullopt};

DecoderConfig read(PublishedConfig& file, const DecoderConfig* model) {
  if (!is_of_class(kClass, file)) return {};
  refuse_quantized(file);
  DecoderConfig config = read_decoder(kClass, file, model);
  read_feed_forward("intermediate_size", kFfnDim, config, file, model);
  for (LayerConfig& layer : config.layers) layer.attention.qkv_bias = true;
  read_windows(windows_from_a_layer_on(kWindow, kFirstSlidingLayer, file), config, file, model);
  read_activation(file);
  return config;
}

void write(const DecoderConfig& config, PublishedKeys& keys) {
  write_decoder(kClass, config, keys);
  keys.set("intermediate_size", config.layers.front().feed_forward.hidden_dim);
  write_windows_from_a_layer_on(config, true, keys);
}

}  // namespace

TUTTI_FAMILY(qwen2) = {
    .flavors = flavors, .model_types = {"qwen2"}, .read = read, .write = write, .gguf = {{.name = "qwen2"}}};

}  // namespace tutti::models
