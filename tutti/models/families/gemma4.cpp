// Gemma 4, the text model: two kinds of layers with heads of their own, keys and values that layers share, inputs of
// each layer, and experts beside a dense feed-forward. Source: the published configurations and weights of Google.
#include "tutti/models/published_gemma4.h"

#include "tutti/models/family.h"

namespace tutti::models {
namespace {

constexpr double kLogitsCap = 30;

// What the sizes of a decoder do not say.
struct Gemma4Sizes {
  DecoderSizes sizes;  // with the heads of layers with a window
  int64_t window, period, full_head_dim;
  int64_t full_kv_heads = 0;  // 0: as in other layers, and values have a projection of their own
  int64_t sharing_layers = 0;
  bool is_double_wide = false;  // the feed-forward of those
  int64_t per_layer_inputs = 0;
  int64_t experts = 0, active_experts = 0, expert_dim = 0;
};

DecoderConfig gemma4(const Gemma4Sizes& s) {
  DecoderConfig config = decoder_of("gemma4", s.sizes);
  make_gemma4(config);
  config.logits_cap = kLogitsCap, config.per_layer_inputs = s.per_layer_inputs;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    LayerConfig& layer = config.layers[i];
    AttentionConfig& a = layer.attention;
    const bool is_full = (static_cast<int64_t>(i) + 1) % s.period == 0;
    a.window = is_full ? 0 : s.window;
    a.rope = is_full ? gemma4_full_rope() : gemma4_sliding_rope();
    if (is_full) a.head_dim = s.full_head_dim, a.keys_are_values = s.full_kv_heads > 0;
    if (is_full && s.full_kv_heads > 0) a.kv_heads = s.full_kv_heads;
    if (s.experts > 0)
      layer.experts_beside = {.hidden_dim = s.expert_dim,
                              .experts = s.experts,
                              .active_experts = s.active_experts,
                              .activation = Activation::gelu_tanh,
                              .scaled_router = true};
  }
  share_keys(s.sharing_layers, config);
  for (LayerConfig& layer : config.layers) {
    if (s.is_double_wide && layer.attention.shared_layer) layer.feed_forward.hidden_dim *= 2;
  }
  return config;
}

DecoderSizes sizes_of(const char* flavor, int64_t dim, int64_t ffn_dim, int64_t layers, int64_t heads, int64_t kv_heads,
                      int64_t head_dim = 256, int64_t vocab = 262144) {
  return {.flavor = flavor,
          .dim = dim,
          .layers = layers,
          .heads = heads,
          .kv_heads = kv_heads,
          .ffn_dim = ffn_dim,
          .vocab = vocab,
          .tied_embeddings = true,
          .head_dim = head_dim};
}

std::vector<DecoderConfig> flavors() {
  return {
      gemma4({.sizes = sizes_of("tiny", 32, 64, 4, 2, 1, 16, 320),
              .window = 24,
              .period = 2,
              .full_head_dim = 32,
              .sharing_layers = 2,
              .is_double_wide = true,
              .per_layer_inputs = 8}),
      gemma4({.sizes = sizes_of("tiny-tp4", 32, 512, 4, 8, 4, 128, 2048),
              .window = 24,
              .period = 2,
              .full_head_dim = 256,
              .full_kv_heads = 4,
              .sharing_layers = 2,
              .per_layer_inputs = 8}),
      gemma4({.sizes = sizes_of("tiny_moe", 32, 64, 2, 2, 2, 16, 320),
              .window = 24,
              .period = 2,
              .full_head_dim = 32,
              .full_kv_heads = 1,
              .experts = 6,
              .active_experts = 2,
              .expert_dim = 24}),
      gemma4({.sizes = sizes_of("tiny_moe-tp4", 32, 512, 2, 8, 4, 128, 2048),
              .window = 24,
              .period = 2,
              .full_head_dim = 256,
              .full_kv_heads = 4,
              .experts = 8,
              .active_experts = 3,
              .expert_dim = 24}),
      gemma4({.sizes = sizes_of("E2B", 1536, 6144, 35, 8, 1),
              .window = 512,
              .period = 5,
              .full_head_dim = 512,
              .sharing_layers = 20,
              .is_double_wide = true,
              .per_layer_inputs = 256}),
      gemma4({.sizes = sizes_of("E4B", 2560, 10240, 42, 8, 2),
              .window = 512,
              .period = 6,
              .full_head_dim = 512,
              .sharing_layers = 18,
              .per_layer_inputs = 256}),
      gemma4({.sizes = sizes_of("31B", 5376, 21504, 60, 32, 16),
              .window = 1024,
              .period = 6,
              .full_head_dim = 512,
              .full_kv_heads = 4}),
      gemma4({.sizes = sizes_of("26B-A4B", 2816, 2112, 30, 16, 8),
              .window = 1024,
              .period = 6,
              .full_head_dim = 512,
              .full_kv_heads = 2,
              .experts = 128,
              .active_experts = 8,
              .expert_dim = 704}),
  };
}

}  // namespace

TUTTI_FAMILY(gemma4) = {.flavors = flavors,
                        .model_types = {"gemma4_text"},
                        .read = read_gemma4,
                        .write = write_gemma4,
                        .gguf = {{.name = "gemma4",
                                  .needs_divisors = true,
                                  .experts_beside = true,
                                  .sizes_by_layer = true,
                                  .read = read_gemma4_keys,
                                  .write = write_gemma4_keys}},
                        .part_names = {{".router.proj.weight", ".moe.gate.weight"},
                                       {".router.scale", ".moe.gate.scale"},
                                       {".router.per_expert_scale", ".moe.gate.per_expert_scale"},
                                       {".experts.gate_up_proj", ".moe.experts.gate_up_proj"},
                                       {".experts.down_proj", ".moe.experts.down_proj"}},
                        .stacks_experts = true};

}  // namespace tutti::models
