// Mixtral: Mistral with a mixture of experts in every layer. Source: the published configurations and weights of
// Mistral AI.
#include "tutti/models/decoder_difference.h"
#include "tutti/models/family.h"
#include "tutti/models/published_decoder.h"
#include "tutti/models/published_writer.h"

namespace tutti::models {
namespace {

DecoderConfig mixtral(const char* flavor, int64_t dim, int64_t layers, int64_t heads, int64_t kv_heads,
                      int64_t expert_dim, int64_t vocab, int64_t head_dim = 128, int64_t experts = 8) {
  return decoder_of("mixtral", {.flavor = flavor,
                                .dim = dim,
                                .layers = layers,
                                .heads = heads,
                                .kv_heads = kv_heads,
                                .ffn_dim = expert_dim,
                                .vocab = vocab,
                                .tied_embeddings = false,
                                .head_dim = head_dim,
                                .norm_eps = 1e-5,
                                .experts = experts,
                                .active_experts = 2});
}

std::vector<DecoderConfig> flavors() {
  return {
      mixtral("tiny", 32, 2, 2, 1, 24, 320, 16, 6),
      mixtral("tiny-tp4", 32, 2, 8, 4, 24, 2048),
      mixtral("8x7B", 4096, 32, 32, 8, 14336, 32000),
      mixtral("8x22B", 6144, 56, 48, 8, 16384, 32768),
  };
}

// The defaults of the class MixtralConfig of transformers.
constexpr int64_t kExpertDim = 14336, kExperts = 8, kActiveExperts = 2;
constexpr PublishedClass kClass{.model_type = "mixtral",
                                .architecture = "MixtralForCausalLM",
                                .dim = 4096,
                                .layers = 32,
                                .heads = 32,
                                .vocab = 32000,
                                .kv_heads = 8,
                                .head_dim = std::nullopt,
                                .eps = 1e-5,
                                .theta = 1e6};

DecoderConfig read(PublishedConfig& file, const DecoderConfig* model) {
  if (!is_of_class(kClass, file)) return {};
  refuse_quantized(file);
  DecoderConfig config = read_decoder(kClass, file, nullptr);
  const std::optional<JsonValue> window = file.find("sliding_window");
  for (LayerConfig& layer : config.layers) {
    layer.attention.window = window ? window->whole(1) : 0;
    layer.feed_forward = {.hidden_dim = file.take("intermediate_size", kExpertDim),
                          .experts = file.take("num_local_experts", kExperts),
                          .active_experts = file.take("num_experts_per_tok", kActiveExperts)};
  }
  read_activation(file);
  if (model != nullptr) note_differences(config, *model, file);
  return config;
}

void write(const DecoderConfig& config, PublishedKeys& keys) {
  write_decoder(kClass, config, keys);
  const LayerConfig& layer = config.layers.front();
  keys.set("intermediate_size", layer.feed_forward.hidden_dim);
  keys.set("num_local_experts", layer.feed_forward.experts);
  keys.set("num_experts_per_tok", layer.feed_forward.active_experts);
  if (layer.attention.window > 0) keys.set("sliding_window", layer.attention.window);
  else keys.set_null("sliding_window");
}

}  // namespace

// llama.cpp reads the files as of the architecture of Llama, with as many hidden features in an expert as elsewhere in
// a layer.
TUTTI_FAMILY(mixtral) = {.flavors = flavors,
                         .model_types = {"mixtral"},
                         .read = read,
                         .write = write,
                         .gguf = {{.name = "llama",
                                   .is_pair_layout = true,
                                   .has_experts = true,
                                   .has_divisors = true,
                                   .expert_length = "feed_forward_length"}},
                         .part_names = {{".block_sparse_moe.", ".mlp."},
                                        {".w1.weight", ".gate_proj.weight"},
                                        {".w2.weight", ".down_proj.weight"},
                                        {".w3.weight", ".up_proj.weight"}}};

}  // namespace tutti::models
