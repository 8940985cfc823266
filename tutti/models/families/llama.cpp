// Llama 3, and SmolLM2, which has its form. Source: the published configurations and weights of Meta and Hugging Face.
#include "tutti/models/family.h"
#include "tutti/models/published_decoder.h"
#include "tutti/models/published_writer.h"

namespace tutti::models {
namespace {

// Llama 3.1 and 3.2 stretch positions by `factor`; 0: not at all.
DecoderConfig llama(const DecoderSizes& sizes, double factor) {
  DecoderConfig config = decoder_of("llama", sizes);
  for (LayerConfig& layer : config.layers) {
    if (factor > 0)
      layer.attention.rope = {
          .type = RopeType::llama3, .theta = sizes.rope_theta, .factor = factor, .original_positions = 8192};
  }
  return config;
}

DecoderConfig llama3(const char* flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ffn_dim,
                     double factor, bool tied = false) {
  return llama({.flavor = flavor,
                .dim = dim,
                .layers = layers,
                .heads = heads,
                .kv_heads = kv_heads,
                .ffn_dim = ffn_dim,
                .vocab = 128256,
                .tied_embeddings = tied,
                .head_dim = dim == 2048 ? 64 : 128,
                .rope_theta = 5e5,
                .norm_eps = 1e-5},
               factor);
}

DecoderConfig smollm2(const char* flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads, int64_t ffn_dim,
                      double theta) {
  return llama({.flavor = flavor,
                .dim = dim,
                .layers = layers,
                .heads = heads,
                .kv_heads = kv_heads,
                .ffn_dim = ffn_dim,
                .vocab = 49152,
                .tied_embeddings = true,
                .head_dim = 64,
                .rope_theta = theta,
                .norm_eps = 1e-5},
               0);
}

std::vector<DecoderConfig> flavors() {
  return {
      // A model that trains in a second, and one that tensor parallelism divides over four ranks.
      llama({.flavor = "tiny",
             .dim = 32,
             .layers = 2,
             .heads = 2,
             .kv_heads = 1,
             .ffn_dim = 64,
             .vocab = 320,
             .tied_embeddings = true,
             .head_dim = 16},
            0),
      llama({.flavor = "tiny-tp4",
             .dim = 32,
             .layers = 2,
             .heads = 8,
             .kv_heads = 4,
             .ffn_dim = 512,
             .vocab = 2048,
             .tied_embeddings = true},
            0),
      smollm2("SmolLM2-135M", 576, 30, 9, 3, 1536, 1e5),
      smollm2("SmolLM2-360M", 960, 32, 15, 5, 2560, 1e5),
      smollm2("SmolLM2-1.7B", 2048, 24, 32, 32, 8192, 130000),
      llama3("3-8B", 4096, 32, 32, 8, 14336, 0),
      llama3("3-70B", 8192, 80, 64, 8, 28672, 0),
      llama3("3.1-8B", 4096, 32, 32, 8, 14336, 8),
      llama3("3.1-70B", 8192, 80, 64, 8, 28672, 8),
      llama3("3.1-405B", 16384, 126, 128, 8, 53248, 8),
      llama3("3.2-1B", 2048, 16, 32, 8, 8192, 32, true),
      llama3("3.2-3B", 3072, 28, 24, 8, 8192, 32, true),
  };
}

// The defaults of the class LlamaConfig of transformers.
constexpr PublishedClass kClass{.model_type = "llama",
                                .architecture = "LlamaForCausalLM",
                                .dim = 4096,
                                .layers = 32,
                                .heads = 32,
                                .vocab = 32000,
                                .kv_heads = std::nullopt,
                                .head_dim = std::nullopt};

DecoderConfig read(PublishedConfig& file, const DecoderConfig* model) {
  if (!is_of_class(kClass, file)) return {};
  refuse_quantized(file);
  DecoderConfig config = read_decoder(kClass, file, model);
  read_feed_forward("intermediate_size", 11008, config, file, model);
  read_flag("attention_bias", false, &AttentionConfig::qkv_bias, config, file, model);
  for (LayerConfig& layer : config.layers) layer.attention.output_bias = layer.attention.qkv_bias;
  read_flag("mlp_bias", false, &FeedForwardConfig::bias, config, file, model);
  read_activation(file);
  return config;
}

void write(const DecoderConfig& config, PublishedKeys& keys) {
  write_decoder(kClass, config, keys);
  const LayerConfig& layer = config.layers.front();
  keys.set("intermediate_size", layer.feed_forward.hidden_dim);
  keys.set("attention_bias", layer.attention.qkv_bias);
  keys.set("mlp_bias", layer.feed_forward.bias);
}

}  // namespace

TUTTI_FAMILY(llama) = {.flavors = flavors,
                       .model_types = {"llama"},
                       .read = read,
                       .write = write,
                       .gguf = {{.name = "llama", .is_pair_layout = true, .has_divisors = true}}};

}  // namespace tutti::models
