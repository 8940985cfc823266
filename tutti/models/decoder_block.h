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

// What the blocks share of a batch.
struct TokenPlaces {
  Tensor cos_TE, sin_TE;  // angles of each token, [T, E/2]
  Tensor first_key_BS;    // the first key that each token may attend to
  AttentionCache* cache = nullptr;
  int64_t layer = 0;  // of the block that is run
};

class DecoderAttention final : public nn::Module {
 public:
  DecoderAttention(const DecoderConfig& config, const AttentionConfig& attention, double dropout);
  // x [T, D] -> [T, D].
  Tensor forward(const Tensor& x_TD, const TokenPlaces& at) const;

  nn::Child<nn::Linear> q_proj, k_proj, v_proj, o_proj;
  std::unique_ptr<nn::Child<nn::RMSNorm>> q_norm, k_norm;  // null: heads have no norms
  nn::Child<nn::Dropout> dropout;

 private:
  Tensor rotated(const Tensor& projected, int64_t heads, const nn::Child<nn::RMSNorm>* norm,
                 const TokenPlaces& at) const;
  Tensor attended(const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE, const TokenPlaces& at) const;

  const AttentionConfig config_;
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

// The router of published mixtures: softmax over all experts.
class DecoderExperts final : public nn::MoE {
 public:
  DecoderExperts(const DecoderConfig& config, const FeedForwardConfig& feed_forward, double dropout);
  Tensor forward(const Tensor& x_TD) const { return dropout(MoE::forward(x_TD)); }

  nn::Child<nn::Dropout> dropout;
};

// Either feed-forward layer of a block, as its submodule "mlp".
struct DecoderMlp {
  DecoderMlp(nn::Module* block, const DecoderConfig& config, const FeedForwardConfig& feed_forward, double dropout);
  Tensor operator()(const Tensor& x_TD) const { return dense != nullptr ? (*dense)(x_TD) : (*experts)(x_TD); }

  std::unique_ptr<nn::Child<DecoderFeedForward>> dense;
  std::unique_ptr<nn::Child<DecoderExperts>> experts;
};

class DecoderBlock final : public nn::Module {
 public:
  DecoderBlock(const DecoderConfig& config, const LayerConfig& layer, double dropout);
  Tensor forward(const Tensor& x_TD, const TokenPlaces& at) const;

  nn::Child<DecoderAttention> self_attn;
  DecoderMlp mlp;
  nn::Child<nn::RMSNorm> input_layernorm, post_attention_layernorm;
  // Null without norms of outputs; post_attention_layernorm is then the norm before the feed-forward.
  std::unique_ptr<nn::Child<nn::RMSNorm>> pre_feedforward_layernorm, post_feedforward_layernorm;
};

}  // namespace tutti::models
