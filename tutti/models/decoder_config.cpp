#include "tutti/models/decoder_config.h"

#include <algorithm>
#include <cmath>

#include "tutti/core/error.h"

namespace tutti::models {
namespace {

int64_t norms_of(const LayerConfig& layer, int64_t dim) {
  return (layer.output_norms ? 4 : 2) * dim + (layer.attention.query_key_norms ? 2 * layer.attention.head_dim : 0);
}

int64_t attention_of(const AttentionConfig& a, int64_t dim) {
  const int64_t queries = a.heads * a.head_dim, keys = a.kv_heads * a.head_dim;
  return dim * (2 * queries + 2 * keys) + (a.qkv_bias ? queries + 2 * keys : 0) + (a.output_bias ? dim : 0);
}

// Counts those of `feed_forwards` layers or experts, and of the router.
int64_t feed_forward_of(const FeedForwardConfig& f, int64_t dim, int64_t feed_forwards) {
  return feed_forwards * (3 * dim * f.hidden_dim + (f.bias ? 2 * f.hidden_dim + dim : 0)) + f.experts * dim;
}

int64_t count_with(const DecoderConfig& c, int64_t FeedForwardConfig::* experts) {
  int64_t count = c.dim + c.vocab * c.dim * (c.tied_embeddings ? 1 : 2);
  for (const LayerConfig& layer : c.layers) {
    const FeedForwardConfig& f = layer.feed_forward;
    count += attention_of(layer.attention, c.dim) + norms_of(layer, c.dim) +
             feed_forward_of(f, c.dim, f.experts > 0 ? f.*experts : 1);
  }
  return count;
}

}  // namespace

std::string name_of(Activation activation) { return activation == Activation::silu ? "silu" : "gelu_pytorch_tanh"; }

bool DecoderConfig::has_experts() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& l) { return l.feed_forward.experts > 0; });
}

DecoderConfig decoder_of(const std::string& family, const DecoderSizes& s) {
  const LayerConfig layer{
      .attention = {.heads = s.heads, .kv_heads = s.kv_heads, .head_dim = s.head_dim, .rope = {.theta = s.rope_theta}},
      .feed_forward = {.hidden_dim = s.ffn_dim, .experts = s.experts, .active_experts = s.active_experts}};
  return {.family = family,
          .flavor = s.flavor,
          .dim = s.dim,
          .vocab = s.vocab,
          .layers = std::vector<LayerConfig>(static_cast<size_t>(std::max<int64_t>(s.layers, 0)), layer),
          .tied_embeddings = s.tied_embeddings,
          .norm_eps = s.norm_eps,
          .init_std = s.init_std};
}

namespace {

// Products of sizes below fit in 64 bits.
constexpr int64_t kMostFeatures = int64_t{1} << 24, kMostRows = int64_t{1} << 31, kMostExperts = 1 << 16;

bool is_finite_and_not_negative(double x) { return std::isfinite(x) && x >= 0; }

}  // namespace

void validate(const DecoderConfig& c) {
  TUTTI_CHECK(std::isfinite(c.norm_eps) && c.norm_eps > 0, "{}: an epsilon of norms of {}; expected a positive number",
              c.name(), c.norm_eps);
  TUTTI_CHECK(
      std::isfinite(c.embedding_scale) && c.embedding_scale != 0 && is_finite_and_not_negative(c.logits_cap),
      "{}: embeddings times {}, logits capped at {}; expected a number other than 0, and a positive one or 0 for "
      "no cap",
      c.name(), c.embedding_scale, c.logits_cap);
  TUTTI_CHECK(c.dim <= kMostFeatures && c.vocab <= kMostRows,
              "{}: model dim {}, vocabulary {}; expected at most {} and {}", c.name(), c.dim, c.vocab, kMostFeatures,
              kMostRows);
  TUTTI_CHECK(c.dim > 0 && c.vocab > 0 && !c.layers.empty(),
              "{}: model dim {}, vocabulary {}, {} layers; expected at least 1 of each", c.name(), c.dim, c.vocab,
              c.layers.size());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const AttentionConfig& a = c.layers[i].attention;
    const FeedForwardConfig& f = c.layers[i].feed_forward;
    TUTTI_CHECK(a.heads > 0 && a.kv_heads > 0 && a.heads % a.kv_heads == 0,
                "{}, layer {}: {} query heads cannot share {} key/value heads evenly", c.name(), i, a.heads,
                a.kv_heads);
    TUTTI_CHECK(a.head_dim > 0 && a.head_dim % 2 == 0,
                "{}, layer {}: heads of {} elements cannot be rotated in pairs; expected an even number", c.name(), i,
                a.head_dim);
    TUTTI_CHECK(
        a.heads <= kMostFeatures && a.head_dim <= kMostFeatures && a.heads * a.head_dim <= kMostFeatures &&
            f.hidden_dim <= kMostFeatures && f.experts <= kMostExperts,
        "{}, layer {}: {} heads of {} elements, {} hidden features, {} experts; expected at most {} features and "
        "{} experts",
        c.name(), i, a.heads, a.head_dim, f.hidden_dim, f.experts, kMostFeatures, kMostExperts);
    TUTTI_CHECK(a.window >= 0, "{}, layer {}: a window of {} keys; expected at least 1, or 0 for all", c.name(), i,
                a.window);
    TUTTI_CHECK(
        is_finite_and_not_negative(a.scale) && is_finite_and_not_negative(a.score_cap),
        "{}, layer {}: scores times {}, capped at {}; expected positive numbers, or 0 for 1 / sqrt(head_dim) and "
        "for no cap",
        c.name(), i, a.scale, a.score_cap);
    TUTTI_CHECK(f.hidden_dim > 0, "{}, layer {}: {} hidden features; expected at least 1", c.name(), i, f.hidden_dim);
    TUTTI_CHECK(f.experts >= 0 && (f.experts == 0 || (f.active_experts > 0 && f.active_experts <= f.experts)),
                "{}, layer {}: {} of {} experts for each token; expected 1 to {}", c.name(), i, f.active_experts,
                f.experts, f.experts);
    TUTTI_CHECK(f.experts == 0 || f.activation == Activation::silu, "{}, layer {}: experts with {} are not supported",
                c.name(), i, name_of(f.activation));
    TUTTI_CHECK(f.experts == 0 || !f.bias, "{}, layer {}: experts with biases are not supported", c.name(), i);
  }
}

int64_t parameter_count(const DecoderConfig& c) { return count_with(c, &FeedForwardConfig::experts); }
int64_t active_parameter_count(const DecoderConfig& c) { return count_with(c, &FeedForwardConfig::active_experts); }

double training_flops_per_token(const DecoderConfig& c, int64_t sequence_length) {
  const int64_t looked_up = c.tied_embeddings ? 0 : c.vocab * c.dim;
  double attention = 0;
  for (const LayerConfig& layer : c.layers) {
    const AttentionConfig& a = layer.attention;
    const int64_t keys = a.window > 0 ? std::min(a.window, sequence_length) : sequence_length;
    attention += 12.0 * static_cast<double>(a.heads * a.head_dim) * static_cast<double>(keys);
  }
  return 6.0 * static_cast<double>(active_parameter_count(c) - looked_up) + attention;
}

}  // namespace tutti::models
