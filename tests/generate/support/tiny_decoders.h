// Decoders of every kind of attention that a cache treats apart, small enough to run thousands of times.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/io/byte_tokenizer.h"
#include "tutti/models/decoder.h"
#include "tutti/models/family.h"
#include "tutti/models/published_gemma4.h"
#include "tutti/runtime/rank_context.h"

namespace tutti::generate {

inline constexpr int64_t kTinyPositions = 400;

inline models::DecoderConfig tiny_gemma4(models::DecoderSizes sizes) {
  const bool has_experts = sizes.flavor == "gemma4-experts";
  sizes.layers = has_experts ? 3 : 6, sizes.tied_embeddings = true;
  models::DecoderConfig config = models::decoder_of("gemma4", sizes);
  models::make_gemma4(config);
  config.logits_cap = 20, config.per_layer_inputs = has_experts ? 0 : 6;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    models::AttentionConfig& a = config.layers[i].attention;
    if (i % 2 == 1) a.rope = models::gemma4_full_rope(), a.head_dim = 14, a.kv_heads = 3, a.keys_are_values = true;
    else a.window = 20;
    if (has_experts)
      config.layers[i].experts_beside = {.hidden_dim = 12,
                                         .experts = 4,
                                         .active_experts = 2,
                                         .activation = models::Activation::gelu_tanh,
                                         .scaled_router = true};
  }
  if (!has_experts) models::share_keys(2, config);
  return config;
}

// "dense": grouped heads of odd sizes; "window": layers with windows of 20 and 33 keys and one without; "windows": all
// layers with one; "experts": a mixture; "gemma4": heads of two sizes, keys that are values and that layers share,
// inputs of layers; "gemma4-experts": experts beside a feed-forward.
inline models::DecoderConfig tiny_decoder(const std::string& kind) {
  models::DecoderSizes sizes{.flavor = kind,
                             .dim = 24,
                             .layers = 3,
                             .heads = 6,
                             .kv_heads = 2,
                             .ffn_dim = 40,
                             .vocab = 262,
                             .tied_embeddings = kind == "dense",
                             .head_dim = 10,
                             .rope_theta = 1e4,
                             .init_std = 0.3};
  if (kind == "experts") sizes.experts = 4, sizes.active_experts = 2;
  if (kind.starts_with("gemma4")) return tiny_gemma4(sizes);
  models::DecoderConfig config = models::decoder_of("llama", sizes);
  if (kind == "window") config.layers[0].attention.window = 20, config.layers[2].attention.window = 33;
  if (kind == "windows") {
    for (models::LayerConfig& layer : config.layers) layer.attention.window = 20;
  }
  return config;
}

inline std::unique_ptr<models::Decoder> make_tiny(const std::string& kind, DType dtype = DType::f32) {
  auto model = std::make_unique<models::Decoder>(tiny_decoder(kind), kTinyPositions);
  seed_all(7);
  nn::initialize(*model);
  if (dtype != DType::f32) model->to(dtype);
  return model;
}

}  // namespace tutti::generate
