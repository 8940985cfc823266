#include "tutti/models/decoder_block.h"

#include "tutti/nn/multi_linear.h"
#include "tutti/nn/own_part.h"
#include "tutti/ops/activation.h"
#include "tutti/ops/attention.h"
#include "tutti/ops/binary.h"
#include "tutti/ops/cast.h"
#include "tutti/ops/creation.h"
#include "tutti/ops/expand.h"
#include "tutti/ops/reshape.h"
#include "tutti/ops/rms_norm.h"
#include "tutti/ops/rope.h"
#include "tutti/ops/squeeze.h"

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

std::unique_ptr<nn::Child<nn::Linear>> projection_if(bool is_there, nn::Module* module, const char* name,
                                                     const DecoderConfig& c, const AttentionConfig& a) {
  if (!is_there) return nullptr;
  return std::make_unique<nn::Child<nn::Linear>>(module, name, c.dim, a.kv_heads * a.head_dim,
                                                 projection(c, a.qkv_bias));
}

Tensor activated(const Tensor& gate, const Tensor& up, Activation activation) {
  return activation == Activation::silu ? swiglu(gate, up) : mul(gelu(gate, GeluForm::tanh), up);
}

nn::MoEOptions experts_of(const DecoderConfig& c, const FeedForwardConfig& f) {
  const nn::Init init = nn::Init::normal(c.init_std);
  return {
      .dim = c.dim,
      .hidden_dim = f.hidden_dim,
      .router = {.num_experts = f.experts,
                 .top_k = f.active_experts,
                 .score_func = nn::ScoreFunction::softmax,
                 .route_norm = f.route_norm,
                 .scaled = f.scaled_router,
                 .norm_eps = c.norm_eps,
                 .init = init},
      .init = init,
      .activation = f.activation == Activation::silu ? nn::ExpertActivation::silu : nn::ExpertActivation::gelu_tanh};
}

}  // namespace

DecoderAttention::DecoderAttention(const DecoderConfig& c, const AttentionConfig& a, double dropout_p)
    : q_proj(this, "q_proj", c.dim, a.heads * a.head_dim, projection(c, a.qkv_bias)),
      k_proj(projection_if(!a.shared_layer, this, "k_proj", c, a)),
      v_proj(projection_if(!a.shared_layer && !a.keys_are_values, this, "v_proj", c, a)),
      o_proj(this, "o_proj", a.heads * a.head_dim, c.dim, projection(c, a.output_bias)),
      q_norm(norm_if(a.query_key_norms, this, "q_norm", a.head_dim, c)),
      k_norm(norm_if(a.query_key_norms && !a.shared_layer, this, "k_norm", a.head_dim, c)),
      dropout(this, "dropout", dropout_p),
      config_(a),
      norm_eps_(c.norm_eps) {}

Tensor DecoderAttention::forward(const Tensor& x_TD, const TokenPlaces& at, const KeysAndValues& shared) const {
  const int64_t heads = config_.heads, head_dim = config_.head_dim;
  const SymInt T = x_TD.size(0);
  Tensor q_THE;
  KeysAndValues own;
  if (k_proj == nullptr) {
    q_THE = rotated(q_proj(x_TD), heads, q_norm.get(), at);
  } else if (v_proj == nullptr) {
    const auto [q_TQ, k_TK] = nn::multi_linear(x_TD, q_proj, *k_proj);
    q_THE = rotated(q_TQ, heads, q_norm.get(), at);
    own = {rotated(k_TK, config_.kv_heads, k_norm.get(), at), value_heads(k_TK)};
  } else {
    const auto [q_TQ, k_TK, v_TK] = nn::multi_linear(x_TD, q_proj, *k_proj, *v_proj);
    q_THE = rotated(q_TQ, heads, q_norm.get(), at);
    own.keys_TKE = rotated(k_TK, config_.kv_heads, k_norm.get(), at);
    own.values_TKE = value_heads(v_TK);
  }
  if (at.kept != nullptr) *at.kept = own;
  const KeysAndValues& seen = k_proj == nullptr ? shared : own;
  return dropout(o_proj(reshape(attended(q_THE, seen.keys_TKE, seen.values_TKE, at), {T, heads * head_dim})));
}

Tensor DecoderAttention::value_heads(const Tensor& v_TK) const {
  const Tensor v_TKE = reshape(v_TK, {v_TK.size(0), config_.kv_heads, config_.head_dim});
  return config_.value_norms ? rms_norm(v_TKE, {}, norm_eps_) : v_TKE;
}

// [T, H, E], or rows of it as [B, S, H, E].
Tensor DecoderAttention::attended(const Tensor& q_THE, const Tensor& k_TKE, const Tensor& v_TKE,
                                  const TokenPlaces& at) const {
  SdpaOptions options{.score_cap = config_.score_cap};
  if (config_.scale > 0) options.scale = config_.scale;
  if (config_.window > 0) options.window = config_.window - 1;  // sdpa counts the keys before the query's own
  if (at.cache != nullptr)
    return at.cache->attend(config_.shared_layer.value_or(at.layer), q_THE, k_TKE, v_TKE, options);
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
  return dropout(down_proj(activated(gate_TF, up_TF, activation_)));
}

DecoderExperts::DecoderExperts(const DecoderConfig& c, const FeedForwardConfig& f, double dropout_p,
                               const nn::RMSNorm* norm)
    : MoE(experts_of(c, f)), dropout(this, "dropout", dropout_p), norm_(norm) {}

// Where ranks divide the tokens, each has a part of the gradient of the weight.
Tensor DecoderExperts::expert_input(const Tensor& x_TD) const {
  if (norm_ == nullptr) return x_TD;
  return rms_norm(x_TD, nn::own_part(norm_->weight, Placement::partial()), norm_->eps(), norm_->form());
}

DecoderMlp::DecoderMlp(nn::Module* block, const DecoderConfig& c, const FeedForwardConfig& f, double dropout) {
  if (f.experts > 0) experts = std::make_unique<nn::Child<DecoderExperts>>(block, "mlp", c, f, dropout);
  else dense = std::make_unique<nn::Child<DecoderFeedForward>>(block, "mlp", c, f, dropout);
}

ExpertsBeside::ExpertsBeside(nn::Module* block, const DecoderConfig& c, const FeedForwardConfig& f, double dropout)
    : post_feedforward_layernorm_1(block, "post_feedforward_layernorm_1", c.dim, norm(c)),
      pre_feedforward_layernorm_2(block, "pre_feedforward_layernorm_2", c.dim, norm(c)),
      post_feedforward_layernorm_2(block, "post_feedforward_layernorm_2", c.dim, norm(c)),
      moe(block, "moe", c, f, dropout, &*pre_feedforward_layernorm_2) {}

Tensor ExpertsBeside::operator()(const Tensor& dense_TD, const Tensor& x_TD) const {
  const Tensor normed_TD = post_feedforward_layernorm_1(dense_TD);
  // Router and experts both read x. A view of their own adds their two cotangents before those of other readers, as
  // where ranks divide the tokens of the mixture.
  const Tensor read_TD = squeeze(unsqueeze(x_TD, 0), 0);
  return add(normed_TD, post_feedforward_layernorm_2(moe(read_TD)));
}

PerLayerInput::PerLayerInput(nn::Module* block, const DecoderConfig& c, Activation activation)
    : per_layer_input_gate(block, "per_layer_input_gate", c.dim, c.per_layer_inputs, projection(c, false)),
      per_layer_projection(block, "per_layer_projection", c.per_layer_inputs, c.dim, projection(c, false)),
      post_per_layer_input_norm(block, "post_per_layer_input_norm", c.dim, norm(c)),
      activation_(activation) {}

Tensor PerLayerInput::operator()(const Tensor& x_TD, const Tensor& input_TP) const {
  const Tensor gated_TP = activated(per_layer_input_gate(x_TD), input_TP, activation_);
  return add(x_TD, post_per_layer_input_norm(per_layer_projection(gated_TP)));
}

DecoderBlock::DecoderBlock(const DecoderConfig& c, const LayerConfig& layer, double dropout)
    : self_attn(this, "self_attn", c, layer.attention, dropout),
      mlp(this, c, layer.feed_forward, dropout),
      input_layernorm(this, "input_layernorm", c.dim, norm(c)),
      post_attention_layernorm(this, "post_attention_layernorm", c.dim, norm(c)),
      pre_feedforward_layernorm(norm_if(layer.output_norms, this, "pre_feedforward_layernorm", c.dim, c)),
      post_feedforward_layernorm(norm_if(layer.output_norms, this, "post_feedforward_layernorm", c.dim, c)) {
  if (layer.has_experts_beside())
    experts_beside = std::make_unique<ExpertsBeside>(this, c, layer.experts_beside, dropout);
  if (c.per_layer_inputs > 0) per_layer_input = std::make_unique<PerLayerInput>(this, c, layer.feed_forward.activation);
  if (c.layer_scalars) layer_scalar = register_buffer("layer_scalar", ones({1}));
}

Tensor DecoderBlock::forward(const Tensor& x_TD, const TokenPlaces& at, const BlockInputs& inputs) const {
  Tensor y_TD;
  if (pre_feedforward_layernorm == nullptr) {
    const Tensor h_TD = add(x_TD, self_attn(input_layernorm(x_TD), at, inputs.shared));
    y_TD = add(h_TD, mlp(post_attention_layernorm(h_TD)));
  } else {
    const Tensor h_TD = add(x_TD, post_attention_layernorm(self_attn(input_layernorm(x_TD), at, inputs.shared)));
    Tensor made_TD = mlp((*pre_feedforward_layernorm)(h_TD));
    if (experts_beside != nullptr) made_TD = (*experts_beside)(made_TD, h_TD);
    y_TD = add(h_TD, (*post_feedforward_layernorm)(made_TD));
  }
  if (per_layer_input != nullptr) y_TD = (*per_layer_input)(y_TD, inputs.per_layer_TP);
  return layer_scalar.defined() ? mul(y_TD, cast(layer_scalar.use(), y_TD.dtype())) : y_TD;
}

}  // namespace tutti::models
