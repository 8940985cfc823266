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
  void experts(std::string_view name, Extents sizes) {
    list.push_back({fmt::format("{}mlp.experts.{}", prefix_, name), std::move(sizes)});
  }
  std::vector<DecoderParameter> list;

 private:
  std::string prefix_;
};

std::vector<DecoderParameter> parameters_of(const LayerConfig& layer, int64_t dim, int64_t index) {
  const AttentionConfig& a = layer.attention;
  const FeedForwardConfig& f = layer.feed_forward;
  ParameterList all(fmt::format("model.layers.{}.", index));
  all.linear("self_attn.q_proj", dim, a.heads * a.head_dim, a.qkv_bias);
  all.linear("self_attn.k_proj", dim, a.kv_heads * a.head_dim, a.qkv_bias);
  all.linear("self_attn.v_proj", dim, a.kv_heads * a.head_dim, a.qkv_bias);
  all.linear("self_attn.o_proj", a.heads * a.head_dim, dim, a.output_bias);
  if (a.query_key_norms) all.weight("self_attn.q_norm", {a.head_dim}), all.weight("self_attn.k_norm", {a.head_dim});
  if (f.experts > 0) {
    all.weight("mlp.gate", {f.experts, dim});
    all.experts("w1", {f.experts, f.hidden_dim, dim});
    all.experts("w2", {f.experts, dim, f.hidden_dim});
    all.experts("w3", {f.experts, f.hidden_dim, dim});
  } else {
    all.linear("mlp.gate_proj", dim, f.hidden_dim, f.bias);
    all.linear("mlp.up_proj", dim, f.hidden_dim, f.bias);
    all.linear("mlp.down_proj", f.hidden_dim, dim, f.bias);
  }
  all.weight("input_layernorm", {dim}), all.weight("post_attention_layernorm", {dim});
  if (layer.output_norms)
    all.weight("pre_feedforward_layernorm", {dim}), all.weight("post_feedforward_layernorm", {dim});
  return std::move(all.list);
}

}  // namespace

std::vector<DecoderParameter> decoder_parameters(const DecoderConfig& c) {
  ParameterList all("");
  all.weight("model.embed_tokens", {c.vocab, c.dim});
  for (size_t i = 0; i < c.layers.size(); ++i) {
    for (DecoderParameter& p : parameters_of(c.layers[i], c.dim, static_cast<int64_t>(i)))
      all.list.push_back(std::move(p));
  }
  all.weight("model.norm", {c.dim});
  if (!c.tied_embeddings) all.weight("lm_head", {c.vocab, c.dim});
  return std::move(all.list);
}

}  // namespace tutti::models
