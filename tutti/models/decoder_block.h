// The blocks of a decoder, made from their description.
//
// Dims: B rows of S tokens, T = B * S tokens, D model dim, H heads, K key/value heads, E head dim, F hidden dim.
#pragma once

#include <memory>

#include "tutti/models/attention_cache.h"
#include "tutti/models/decoder_config.h"
#include "tutti/nn/dropout.h"
#include "tutti/nn/linear.h"
#include "tutti/nn/moe.h"
#include "tutti/nn/norm.h"

namespace tutti::models {

// Keys, normed and rotated, and values of a layer, [T, K, E].
struct KeysAndValues {
  Tensor keys_TKE, values_TKE;
};

// What the blocks share of a batch.
struct TokenPlaces {
  Tensor cos_TE, sin_TE;  // angles of each token, [T, E/2]
  Tensor first_key_BS;    // the first key that each token may attend to
  AttentionCache* cache = nullptr;
  int64_t layer = 0;  // of the block that is run
  // Where a layer whose keys and values later ones share leaves them; null: none does.
  KeysAndValues* kept = nullptr;
};

// What a block reads besides x.
struct BlockInputs {
  KeysAndValues shared = {};  // of the layer that it shares them with; undefined: it has its own, or a cache has them
  Tensor per_layer_TP = {};   // its per-layer inputs [T, P]; undefined: the model has none
};

class DecoderAttention final : public nn::Module {
 public:
  DecoderAttention(const DecoderConfig& config, const AttentionConfig& attention, double dropout);
  // x [T, D] -> [T, D].
  Tensor forward(const Tensor& x_TD, const TokenPlaces& at, const KeysAndValues& shared) const;

  nn::Child<nn::Linear> q_proj;
  // Null where keys and values are those of another layer; without v_proj alone keys are the values.
  std::unique_ptr<nn::Child<nn::Linear>> k_proj, v_proj;
  nn::Child<nn::Linear> o_proj;
  std::unique_ptr<nn::Child<nn::RMSNorm>> q_norm, k_norm;  // null: heads have no norms
  nn::Child<nn::Dropout> dropout;

 private:
  Tensor value_heads(const Tensor& v_TK) const;
  Tensor rotated(const Tensor& projected, int64_t heads, const nn::Child<nn::RMSNorm>* norm,
                 const TokenPlaces& at) const;
  Tensor attended(const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE, const TokenPlaces& at) const;

  const AttentionConfig config_;
  const double norm_eps_;
};

// down(activation(gate(x)) * up(x)).
class DecoderFeedForward final : public nn::Module {
 public:
  DecoderFeedForward(const DecoderConfig& config, const FeedForwardConfig& feed_forward, double dropout);
  Tensor forward(const Tensor& x_TD) const;

  nn::Child<nn::Linear> gate_proj, up_proj, down_proj;
  nn::Child<nn::Dropout> dropout;

 private:
  const Activation activation_;
};

// The router of published mixtures: softmax over all experts. With a norm, the experts read what it makes of x, and the
// router reads x.
class DecoderExperts final : public nn::MoE {
 public:
  DecoderExperts(const DecoderConfig& config, const FeedForwardConfig& feed_forward, double dropout,
                 const nn::RMSNorm* norm = nullptr);
  Tensor forward(const Tensor& x_TD) const { return dropout(MoE::forward(x_TD)); }

  nn::Child<nn::Dropout> dropout;

 protected:
  Tensor expert_input(const Tensor& x_TD) const override;

 private:
  const nn::RMSNorm* norm_;
};

// Either feed-forward layer of a block, as its submodule "mlp".
struct DecoderMlp {
  DecoderMlp(nn::Module* block, const DecoderConfig& config, const FeedForwardConfig& feed_forward, double dropout);
  Tensor operator()(const Tensor& x_TD) const { return dense != nullptr ? (*dense)(x_TD) : (*experts)(x_TD); }

  std::unique_ptr<nn::Child<DecoderFeedForward>> dense;
  std::unique_ptr<nn::Child<DecoderExperts>> experts;
};

// A mixture of experts beside the dense feed-forward, as submodules of the block.
struct ExpertsBeside {
  ExpertsBeside(nn::Module* block, const DecoderConfig& config, const FeedForwardConfig& experts, double dropout);
  // What the feed-forward makes of x [T, D], and x, which the mixture reads, give the sum of both, each normed.
  Tensor operator()(const Tensor& dense_TD, const Tensor& x_TD) const;

  nn::Child<nn::RMSNorm> post_feedforward_layernorm_1, pre_feedforward_layernorm_2, post_feedforward_layernorm_2;
  nn::Child<DecoderExperts> moe;
};

// What each layer makes of its own input of a token, as submodules of the block.
struct PerLayerInput {
  PerLayerInput(nn::Module* block, const DecoderConfig& config, Activation activation);
  Tensor operator()(const Tensor& x_TD, const Tensor& input_TP) const;

  nn::Child<nn::Linear> per_layer_input_gate, per_layer_projection;
  nn::Child<nn::RMSNorm> post_per_layer_input_norm;

 private:
  const Activation activation_;
};

class DecoderBlock final : public nn::Module {
 public:
  DecoderBlock(const DecoderConfig& config, const LayerConfig& layer, double dropout);
  Tensor forward(const Tensor& x_TD, const TokenPlaces& at, const BlockInputs& inputs) const;

  nn::Child<DecoderAttention> self_attn;
  DecoderMlp mlp;
  nn::Child<nn::RMSNorm> input_layernorm, post_attention_layernorm;
  // Null without norms of outputs; post_attention_layernorm is then the norm before the feed-forward.
  std::unique_ptr<nn::Child<nn::RMSNorm>> pre_feedforward_layernorm, post_feedforward_layernorm;
  std::unique_ptr<ExpertsBeside> experts_beside;   // null: the layer has none
  std::unique_ptr<PerLayerInput> per_layer_input;  // null: layers have none
  nn::Buffer layer_scalar;                         // [1], by which results are multiplied; undefined: by nothing
};

}  // namespace tutti::models
