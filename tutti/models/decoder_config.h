// DecoderConfig: a decoder as data, layer by layer. The one implementation (decoder.h), the plans of its ranks, counts
// of parameters and files of published models all read this description; a family (family.h) makes it.
//
// Parts have the names of Qwen3's published weights, whatever the family, and norms of outputs those of Gemma's:
//
//   model.embed_tokens, model.layers.N.{input_layernorm, post_attention_layernorm}, model.norm, lm_head
//   model.layers.N.self_attn.{q_proj, k_proj, v_proj, o_proj, q_norm, k_norm}
//   model.layers.N.mlp.{gate_proj, up_proj, down_proj}, or with experts mlp.gate and mlp.experts.{w1, w2, w3}
//
// Where a layer has norms of outputs, its norms are input_layernorm, post_attention_layernorm (of the output of
// attention), pre_feedforward_layernorm and post_feedforward_layernorm. Parts that only Gemma 4 has are named as there:
//
//   model.{embed_tokens_per_layer, per_layer_model_projection, per_layer_projection_norm}
//   model.layers.N.{per_layer_input_gate, per_layer_projection, post_per_layer_input_norm}, the buffer layer_scalar
//   model.layers.N.{post_feedforward_layernorm_1, pre_feedforward_layernorm_2, post_feedforward_layernorm_2}
//
// but for its experts, which are model.layers.N.moe.{gate, experts.w1, experts.w2, experts.w3}, with the router's
// moe.gate.{scale, per_expert_scale}.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/models/rope_angles.h"

namespace tutti::models {

struct AttentionConfig {
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  // So many keys are visible to a query, with its own one; 0: all that are not later.
  int64_t window = 0;
  RopeConfig rope;
  bool qkv_bias = false, output_bias = false;  // of the projections
  bool query_key_norms = false;                // an RMS norm of each head of queries and keys, before their rotation
  double scale = 0;                            // of the products of queries and keys; 0: 1 / sqrt(head_dim)
  double score_cap = 0;                        // scores s become score_cap tanh(s / score_cap); 0: they stay
  bool value_norms = false;                    // an RMS norm without weight of each head of values
  // Values are the projected keys before their norm and rotation; there is no v_proj.
  bool keys_are_values = false;
  // The earlier layer whose keys and values are attended to, as this one has none; nothing: its own.
  std::optional<int64_t> shared_layer = {};
  bool operator==(const AttentionConfig&) const = default;
};

// The function that a feed-forward applies to its gate.
enum class Activation : uint8_t { silu, gelu_tanh };
std::string name_of(Activation activation);

struct FeedForwardConfig {
  int64_t hidden_dim = 0;  // of the layer, or of each expert
  bool bias = false;
  // A mixture of so many experts, of which each token takes active_experts; 0: one feed-forward layer for all tokens.
  int64_t experts = 0, active_experts = 0;
  bool route_norm = true;  // the weights of a token's experts add up to 1
  Activation activation = Activation::silu;
  // The router reads RmsNorm(x) * scale / sqrt(dim), and multiplies each expert's weight by its per_expert_scale.
  bool scaled_router = false;
  bool operator==(const FeedForwardConfig&) const = default;
};

//   h = x + Attention(RmsNorm(x));  y = h + FeedForward(RmsNorm(h))
// or with norms of outputs
//   h = x + RmsNorm(Attention(RmsNorm(x)));  y = h + RmsNorm(FeedForward(RmsNorm(h)))
// where with experts beside FeedForward(RmsNorm(h)) is
//   RmsNorm(FeedForward(RmsNorm(h))) + RmsNorm(Experts(RmsNorm(h)))   and the router reads h itself.
struct LayerConfig {
  AttentionConfig attention;
  FeedForwardConfig feed_forward;
  bool output_norms = false;
  FeedForwardConfig experts_beside = {};  // a mixture whose outputs are added to those of feed_forward
  bool has_experts_beside() const { return experts_beside.experts > 0; }
  // The mixture of the layer; null: it has none.
  const FeedForwardConfig* mixture() const {
    return has_experts_beside() ? &experts_beside : feed_forward.experts > 0 ? &feed_forward : nullptr;
  }
  bool operator==(const LayerConfig&) const = default;
};

struct DecoderConfig {
  std::string family, flavor;  // for messages: "qwen3", "0.6B"
  int64_t dim = 0, vocab = 0;
  std::vector<LayerConfig> layers;
  bool tied_embeddings = false;  // the head is the embedding
  double norm_eps = 1e-6;
  double init_std = 0.02;            // of all weights but norms
  bool zero_centered_norms = false;  // norms multiply by 1 + weight
  double embedding_scale = 1;        // by which the embeddings of tokens are multiplied, unlike a tied head
  double logits_cap = 0;             // logits x become logits_cap tanh(x / logits_cap); 0: they stay
  // Features that each layer gets of a token besides x, after the feed-forward; 0: none. With x the scaled embeddings,
  //   p = (RmsNorm(per_layer_model_projection(x) / sqrt(dim)) + sqrt(P) embed_tokens_per_layer(token)) / sqrt(2)
  //   y = y + RmsNorm(per_layer_projection(activation(per_layer_input_gate(y)) * p of the layer))
  int64_t per_layer_inputs = 0;
  bool layer_scalars = false;  // what a layer returns is multiplied by its buffer layer_scalar

  std::string name() const { return family + " " + flavor; }
  bool has_experts() const;  // in some layer
};

// The sizes of a decoder whose layers are alike, as tables of published models give them.
struct DecoderSizes {
  std::string flavor;
  int64_t dim, layers, heads, kv_heads, ffn_dim, vocab;
  bool tied_embeddings;
  int64_t head_dim = 128;
  double rope_theta = 1e6;
  double norm_eps = 1e-6;
  double init_std = 0.02;
  int64_t experts = 0, active_experts = 0;  // of ffn_dim hidden features
};
// A decoder of these sizes in which nothing has a bias and heads have no norms.
DecoderConfig decoder_of(const std::string& family, const DecoderSizes& sizes);

// UsageError, naming model and layer, for sizes that are not positive, heads that key/value heads cannot share evenly,
// odd head dims, experts that do not fit, and keys of a layer that has other heads or is not before.
void validate(const DecoderConfig& config);

// The number of parameters, computed without building the model.
int64_t parameter_count(const DecoderConfig& config);
// Those that one token meets: all of a dense model, and of a mixture of experts those of active_experts experts.
int64_t active_parameter_count(const DecoderConfig& config);
// Training FLOPs per token: 6 per active parameter, not counting an embedding that is only looked up, plus 12 * heads *
// head_dim * (keys that a query can see in rows of `sequence_length`) in each layer for attention, as if it were not
// causal.
double training_flops_per_token(const DecoderConfig& config, int64_t sequence_length);

}  // namespace tutti::models
