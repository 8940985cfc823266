#include "tutti/models/decoder_config.h"

#include <algorithm>
#include <cmath>

#include "tutti/core/error.h"

namespace tutti::models {
namespace {

int64_t norms_of(const LayerConfig& layer, int64_t dim) {
  const AttentionConfig& a = layer.attention;
  return ((layer.output_norms ? 4 : 2) + (layer.has_experts_beside() ? 3 : 0)) * dim +
         (a.query_key_norms ? (a.shared_layer ? 1 : 2) * a.head_dim : 0);
}

int64_t attention_of(const AttentionConfig& a, int64_t dim) {
  const int64_t queries = a.heads * a.head_dim,
                projected = a.shared_layer      ? 0
                            : a.keys_are_values ? 1
                                                : 2,
                keys = projected * a.kv_heads * a.head_dim;
  return dim * (2 * queries + keys) + (a.qkv_bias ? queries + keys : 0) + (a.output_bias ? dim : 0);
}

// Counts those of `feed_forwards` layers or experts, and of the router.
int64_t feed_forward_of(const FeedForwardConfig& f, int64_t dim, int64_t feed_forwards) {
  return feed_forwards * (3 * dim * f.hidden_dim + (f.bias ? 2 * f.hidden_dim + dim : 0)) + f.experts * dim +
         (f.scaled_router ? dim + f.experts : 0);
}

// The gate, projection and norm of a layer.
int64_t per_layer_inputs_of(const DecoderConfig& c) {
  return c.per_layer_inputs > 0 ? 2 * c.per_layer_inputs * c.dim + c.dim : 0;
}
// The table, projection and norm of all of them.
int64_t shared_inputs_of(const DecoderConfig& c) {
  const int64_t features = std::ssize(c.layers) * c.per_layer_inputs;
  return features > 0 ? c.vocab * features + features * c.dim + c.per_layer_inputs : 0;
}

int64_t count_with(const DecoderConfig& c, int64_t FeedForwardConfig::* experts) {
  int64_t count = c.dim + c.vocab * c.dim * (c.tied_embeddings ? 1 : 2) + shared_inputs_of(c);
  for (const LayerConfig& layer : c.layers) {
    const FeedForwardConfig& f = layer.feed_forward;
    count += attention_of(layer.attention, c.dim) + norms_of(layer, c.dim) +
             feed_forward_of(f, c.dim, f.experts > 0 ? f.*experts : 1) + per_layer_inputs_of(c);
    if (layer.has_experts_beside())
      count += feed_forward_of(layer.experts_beside, c.dim, layer.experts_beside.*experts);
  }
  return count;
}

}  // namespace

std::string name_of(Activation activation) { return activation == Activation::silu ? "silu" : "gelu_pytorch_tanh"; }

bool DecoderConfig::has_experts() const {
  return std::any_of(layers.begin(), layers.end(), [](const LayerConfig& l) { return l.mixture() != nullptr; });
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

void validate_feed_forward(const DecoderConfig& c, size_t i, const FeedForwardConfig& f) {
  TUTTI_CHECK(f.hidden_dim > 0, "{}, layer {}: {} hidden features; expected at least 1", c.name(), i, f.hidden_dim);
  TUTTI_CHECK(f.experts >= 0 && (f.experts == 0 || (f.active_experts > 0 && f.active_experts <= f.experts)),
              "{}, layer {}: {} of {} experts for each token; expected 1 to {}", c.name(), i, f.active_experts,
              f.experts, f.experts);
  TUTTI_CHECK(f.hidden_dim <= kMostFeatures && f.experts <= kMostExperts,
              "{}, layer {}: {} hidden features, {} experts; expected at most {} features and {} experts", c.name(), i,
              f.hidden_dim, f.experts, kMostFeatures, kMostExperts);
  TUTTI_CHECK(f.experts == 0 || !f.bias, "{}, layer {}: experts with biases are not supported", c.name(), i);
}

// A layer attends with its own queries to keys and values that another has computed.
void validate_shared(const DecoderConfig& c, size_t i) {
  const AttentionConfig& a = c.layers[i].attention;
  TUTTI_CHECK(*a.shared_layer >= 0 && *a.shared_layer < static_cast<int64_t>(i),
              "{}, layer {}: keys and values of layer {}; expected an earlier layer", c.name(), i, *a.shared_layer);
  const AttentionConfig& of = c.layers[static_cast<size_t>(*a.shared_layer)].attention;
  TUTTI_CHECK(!of.shared_layer, "{}, layer {}: keys and values of layer {}, which has none of its own", c.name(), i,
              *a.shared_layer);
  TUTTI_CHECK(of.head_dim == a.head_dim && of.kv_heads == a.kv_heads && of.window == a.window,
              "{}, layer {}: {} heads of {} elements and a window of {} for keys and values of layer {}, which has {} "
              "heads of {} elements and a window of {}",
              c.name(), i, a.kv_heads, a.head_dim, a.window, *a.shared_layer, of.kv_heads, of.head_dim, of.window);
}

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
  TUTTI_CHECK(c.per_layer_inputs >= 0 && c.per_layer_inputs <= kMostFeatures / std::ssize(c.layers),
              "{}: {} features of each layer's input; expected 0 to {} for {} layers", c.name(), c.per_layer_inputs,
              kMostFeatures / std::ssize(c.layers), c.layers.size());
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
    validate_feed_forward(c, i, f);
    if (c.layers[i].has_experts_beside()) {
      validate_feed_forward(c, i, c.layers[i].experts_beside);
      TUTTI_CHECK(f.experts == 0 && c.layers[i].output_norms,
                  "{}, layer {}: experts beside {}; expected a dense feed-forward with norms of outputs", c.name(), i,
                  f.experts > 0 ? "other experts" : "a feed-forward without norms of outputs");
    }
    if (a.shared_layer) validate_shared(c, i);
  }
}

int64_t parameter_count(const DecoderConfig& c) { return count_with(c, &FeedForwardConfig::experts); }
int64_t active_parameter_count(const DecoderConfig& c) { return count_with(c, &FeedForwardConfig::active_experts); }

double training_flops_per_token(const DecoderConfig& c, int64_t sequence_length) {
  const int64_t looked_up =
      (c.tied_embeddings ? 0 : c.vocab * c.dim) + c.vocab * std::ssize(c.layers) * c.per_layer_inputs;
  double attention = 0;
  for (const LayerConfig& layer : c.layers) {
    const AttentionConfig& a = layer.attention;
    const int64_t keys = a.window > 0 ? std::min(a.window, sequence_length) : sequence_length;
    attention += 12.0 * static_cast<double>(a.heads * a.head_dim) * static_cast<double>(keys);
  }
  return 6.0 * static_cast<double>(active_parameter_count(c) - looked_up) + attention;
}

}  // namespace tutti::models
