#include "tutti/models/decoder_parameters.h"

#include <fmt/core.h>

namespace tutti::models {
namespace {

class ParameterList {
 public:
  explicit ParameterList(std::string prefix) : prefix_(std::move(prefix)) {}
  void weight(std::string_view name, Extents sizes) {
    list.push_back({fmt::format("{}{}.weight", prefix_, name), std::move(sizes)});
  }
  void linear(std::string_view name, int64_t in, int64_t out, bool bias) {
    weight(name, {out, in});
    if (bias) list.push_back({fmt::format("{}{}.bias", prefix_, name), {out}});
  }
  void mixture(const std::string& name, int64_t dim, const FeedForwardConfig& f) {
    weight(name + ".gate", {f.experts, dim});
    if (f.scaled_router) add(name + ".gate.scale", {dim}), add(name + ".gate.per_expert_scale", {f.experts});
    add(name + ".experts.w1", {f.experts, f.hidden_dim, dim});
    add(name + ".experts.w2", {f.experts, dim, f.hidden_dim});
    add(name + ".experts.w3", {f.experts, f.hidden_dim, dim});
  }
  std::vector<DecoderParameter> list;

 private:
  void add(std::string_view name, Extents sizes) {
    list.push_back({fmt::format("{}{}", prefix_, name), std::move(sizes)});
  }

  std::string prefix_;
};

std::vector<DecoderParameter> parameters_of(const LayerConfig& layer, const DecoderConfig& c, int64_t index) {
  const int64_t dim = c.dim;
  const AttentionConfig& a = layer.attention;
  const FeedForwardConfig& f = layer.feed_forward;
  ParameterList all(fmt::format("model.layers.{}.", index));
  all.linear("self_attn.q_proj", dim, a.heads * a.head_dim, a.qkv_bias);
  if (!a.shared_layer) all.linear("self_attn.k_proj", dim, a.kv_heads * a.head_dim, a.qkv_bias);
  if (!a.shared_layer && !a.keys_are_values) all.linear("self_attn.v_proj", dim, a.kv_heads * a.head_dim, a.qkv_bias);
  all.linear("self_attn.o_proj", a.heads * a.head_dim, dim, a.output_bias);
  if (a.query_key_norms) all.weight("self_attn.q_norm", {a.head_dim});
  if (a.query_key_norms && !a.shared_layer) all.weight("self_attn.k_norm", {a.head_dim});
  if (f.experts > 0) {
    all.mixture("mlp", dim, f);
  } else {
    all.linear("mlp.gate_proj", dim, f.hidden_dim, f.bias);
    all.linear("mlp.up_proj", dim, f.hidden_dim, f.bias);
    all.linear("mlp.down_proj", f.hidden_dim, dim, f.bias);
  }
  all.weight("input_layernorm", {dim}), all.weight("post_attention_layernorm", {dim});
  if (layer.output_norms)
    all.weight("pre_feedforward_layernorm", {dim}), all.weight("post_feedforward_layernorm", {dim});
  if (layer.has_experts_beside()) {
    all.weight("post_feedforward_layernorm_1", {dim}), all.weight("pre_feedforward_layernorm_2", {dim});
    all.weight("post_feedforward_layernorm_2", {dim});
    all.mixture("moe", dim, layer.experts_beside);
  }
  if (c.per_layer_inputs > 0) {
    all.weight("per_layer_input_gate", {c.per_layer_inputs, dim});
    all.weight("per_layer_projection", {dim, c.per_layer_inputs});
    all.weight("post_per_layer_input_norm", {dim});
  }
  return std::move(all.list);
}

}  // namespace

std::vector<DecoderParameter> decoder_parameters(const DecoderConfig& c) {
  ParameterList all("");
  all.weight("model.embed_tokens", {c.vocab, c.dim});
  for (size_t i = 0; i < c.layers.size(); ++i) {
    for (DecoderParameter& p : parameters_of(c.layers[i], c, static_cast<int64_t>(i))) all.list.push_back(std::move(p));
  }
  all.weight("model.norm", {c.dim});
  if (c.per_layer_inputs > 0) {
    const int64_t features = std::ssize(c.layers) * c.per_layer_inputs;
    all.weight("model.embed_tokens_per_layer", {c.vocab, features});
    all.weight("model.per_layer_model_projection", {features, c.dim});
    all.weight("model.per_layer_projection_norm", {c.per_layer_inputs});
  }
  if (!c.tied_embeddings) all.weight("lm_head", {c.vocab, c.dim});
  return std::move(all.list);
}

std::vector<DecoderParameter> decoder_buffers(const DecoderConfig& c) {
  std::vector<DecoderParameter> list;
  for (size_t i = 0; c.layer_scalars && i < c.layers.size(); ++i)
    list.push_back({fmt::format("model.layers.{}.layer_scalar", i), {1}});
  return list;
}

}  // namespace tutti::models
