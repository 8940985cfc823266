#include "tutti/models/decoder_block.h"

#include "tutti/nn/multi_linear.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/rope.h"

namespace tutti::models {
namespace {

nn::LinearOptions projection(const DecoderConfig& c, bool bias) {
  return {.bias = bias, .init = nn::Init::normal(c.init_std)};
}

nn::RMSNormOptions norm(const DecoderConfig& c) {
  return {.eps = c.norm_eps, .form = c.zero_centered_norms ? NormWeight::zero_centered : NormWeight::factor};
}

std::unique_ptr<nn::Child<nn::RMSNorm>> norm_if(bool is_there, nn::Module* module, const char* name, int64_t dim,
                                                const DecoderConfig& c) {
  return is_there ? std::make_unique<nn::Child<nn::RMSNorm>>(module, name, dim, norm(c)) : nullptr;
}

nn::MoEOptions experts_of(const DecoderConfig& c, const FeedForwardConfig& f) {
  const nn::Init init = nn::Init::normal(c.init_std);
  return {.dim = c.dim,
          .hidden_dim = f.hidden_dim,
          .router = {.num_experts = f.experts,
                     .top_k = f.active_experts,
                     .score_func = nn::ScoreFunction::softmax,
                     .route_norm = f.route_norm,
                     .init = init},
          .init = init};
}

}  // namespace

DecoderAttention::DecoderAttention(const DecoderConfig& c, const AttentionConfig& a, double dropout_p)
    : q_proj(this, "q_proj", c.dim, a.heads * a.head_dim, projection(c, a.qkv_bias)),
      k_proj(this, "k_proj", c.dim, a.kv_heads * a.head_dim, projection(c, a.qkv_bias)),
      v_proj(this, "v_proj", c.dim, a.kv_heads * a.head_dim, projection(c, a.qkv_bias)),
      o_proj(this, "o_proj", a.heads * a.head_dim, c.dim, projection(c, a.output_bias)),
      q_norm(norm_if(a.query_key_norms, this, "q_norm", a.head_dim, c)),
      k_norm(norm_if(a.query_key_norms, this, "k_norm", a.head_dim, c)),
      dropout(this, "dropout", dropout_p),
      config_(a) {}

Tensor DecoderAttention::forward(const Tensor& x_TD, const TokenPlaces& at) const {
  const auto& [heads, kv_heads, head_dim] = std::tie(config_.heads, config_.kv_heads, config_.head_dim);
  const SymInt T = x_TD.size(0);
  const auto [q_TQ, k_TK, v_TK] = nn::multi_linear(x_TD, q_proj, k_proj, v_proj);
  const Tensor q_THE = rotated(q_TQ, heads, q_norm.get(), at), k_TKE = rotated(k_TK, kv_heads, k_norm.get(), at);
  const Tensor v_TKE = reshape(v_TK, {T, kv_heads, head_dim});
  return dropout(o_proj(reshape(attended(q_THE, k_TKE, v_TKE, at), {T, heads * head_dim})));
}

// [T, H, E], or rows of it as [B, S, H, E].
Tensor DecoderAttention::attended(const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                                  const TokenPlaces& at) const {
  SdpaOptions options{.score_cap = config_.score_cap};
  if (config_.scale > 0) options.scale = config_.scale;
  if (config_.window > 0) options.window = config_.window - 1;  // sdpa counts the keys before the query's own
  if (at.cache != nullptr) return at.cache->attend(at.layer, q_THE, k_TKE, v_TKE, options);
  options.causal = true;
  options.first_key = at.first_key_BS;
  const SymInt B = at.first_key_BS.size(0), S = at.first_key_BS.size(1);
  const auto rows = [&](const Tensor& x_TNE, int64_t heads) { return reshape(x_TNE, {B, S, heads, config_.head_dim}); };
  return sdpa(rows(q_THE, config_.heads), rows(k_TKE, config_.kv_heads), rows(v_TKE, config_.kv_heads), options);
}

// The shared weight of the norm is expanded over heads: its gradient sums tokens per head first, heads last.
Tensor DecoderAttention::rotated(const Tensor& projected, int64_t heads, const nn::Child<nn::RMSNorm>* norm,
                                 const TokenPlaces& at) const {
  const int64_t head_dim = config_.head_dim;
  const Tensor x_THE = reshape(projected, {projected.size(0), heads, head_dim});
  if (norm == nullptr) return rope(x_THE, at.cos_TE, at.sin_TE);
  const Tensor weight_HE = expand((*norm)->weight, {heads, head_dim});
  return rope(rms_norm(x_THE, weight_HE, (*norm)->eps(), (*norm)->form()), at.cos_TE, at.sin_TE);
}

DecoderFeedForward::DecoderFeedForward(const DecoderConfig& c, const FeedForwardConfig& f, double dropout_p)
    : gate_proj(this, "gate_proj", c.dim, f.hidden_dim, projection(c, f.bias)),
      up_proj(this, "up_proj", c.dim, f.hidden_dim, projection(c, f.bias)),
      down_proj(this, "down_proj", f.hidden_dim, c.dim, projection(c, f.bias)),
      dropout(this, "dropout", dropout_p),
      activation_(f.activation) {}

Tensor DecoderFeedForward::forward(const Tensor& x_TD) const {
  const auto [gate_TF, up_TF] = nn::multi_linear(x_TD, gate_proj, up_proj);
  if (activation_ == Activation::silu) return dropout(down_proj(swiglu(gate_TF, up_TF)));
  return dropout(down_proj(mul(gelu(gate_TF, GeluForm::tanh), up_TF)));
}

DecoderExperts::DecoderExperts(const DecoderConfig& c, const FeedForwardConfig& f, double dropout_p)
    : MoE(experts_of(c, f)), dropout(this, "dropout", dropout_p) {}

DecoderMlp::DecoderMlp(nn::Module* block, const DecoderConfig& c, const FeedForwardConfig& f, double dropout) {
  if (f.experts > 0) experts = std::make_unique<nn::Child<DecoderExperts>>(block, "mlp", c, f, dropout);
  else dense = std::make_unique<nn::Child<DecoderFeedForward>>(block, "mlp", c, f, dropout);
}

DecoderBlock::DecoderBlock(const DecoderConfig& c, const LayerConfig& layer, double dropout)
    : self_attn(this, "self_attn", c, layer.attention, dropout),
      mlp(this, c, layer.feed_forward, dropout),
      input_layernorm(this, "input_layernorm", c.dim, norm(c)),
      post_attention_layernorm(this, "post_attention_layernorm", c.dim, norm(c)),
      pre_feedforward_layernorm(norm_if(layer.output_norms, this, "pre_feedforward_layernorm", c.dim, c)),
      post_feedforward_layernorm(norm_if(layer.output_norms, this, "post_feedforward_layernorm", c.dim, c)) {}

Tensor DecoderBlock::forward(const Tensor& x_TD, const TokenPlaces& at) const {
  if (pre_feedforward_layernorm == nullptr) {
    const Tensor h_TD = add(x_TD, self_attn(input_layernorm(x_TD), at));
    return add(h_TD, mlp(post_attention_layernorm(h_TD)));
  }
  const Tensor h_TD = add(x_TD, post_attention_layernorm(self_attn(input_layernorm(x_TD), at)));
  return add(h_TD, (*post_feedforward_layernorm)(mlp((*pre_feedforward_layernorm)(h_TD))));
}

}  // namespace tutti::models
