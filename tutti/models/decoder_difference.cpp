#include "tutti/models/decoder_difference.h"

#include <algorithm>
#include <cmath>

#include "tutti/core/error.h"
#include "tutti/models/published_config.h"

namespace tutti::models {
namespace {

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(a); }

bool has_angles_of(const AttentionConfig& a, const AttentionConfig& b) {
  if (a.head_dim != b.head_dim || !is_near(rope_attention_factor(a.rope), rope_attention_factor(b.rope))) return false;
  const std::vector<double> f = rope_frequencies(a.rope, a.head_dim), g = rope_frequencies(b.rope, b.head_dim);
  return std::equal(f.begin(), f.end(), g.begin(), g.end(), is_near);
}

double scale_of(const AttentionConfig& a) {
  return a.scale > 0 ? a.scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(a.head_dim, 1)));
}

std::string angles_text(const AttentionConfig& a) {
  const RopeConfig& r = a.rope;
  if (!r.divisors.empty()) {
    std::string text = fmt::format("base {}, divided by", r.theta);
    for (const double divisor : r.divisors) text += fmt::format(" {:.6g}", divisor);
    return text;
  }
  if (r.type == RopeType::plain) return fmt::format("base {}", r.theta);
  if (r.type == RopeType::proportional)
    return fmt::format("base {}, {} in {} of the pairs, divided by {}", r.theta, name_of(r.type), r.rotary_factor,
                       r.factor);
  return fmt::format("base {}, {} by {}, from {} positions, cosines times {}{}", r.theta, name_of(r.type), r.factor,
                     r.original_positions, rope_attention_factor(r), r.truncate ? "" : ", blended between any dims");
}

struct Difference {
  std::string what, model, said;
};

class Differences {
 public:
  template <class T>
  void compare(const std::string& what, const T& model, const T& said) {
    if (model != said) note(what, fmt::format("{}", model), fmt::format("{}", said));
  }
  // Files hold some numbers in f32, and some as a power that is computed.
  void compare_numbers(const std::string& what, double model, double said) {
    if (!is_near(model, said)) note(what, fmt::format("{:.6g}", model), fmt::format("{:.6g}", said));
  }
  void compare_layer(size_t i, const LayerConfig& model, const LayerConfig& said) {
    const auto in = [&](const char* what) { return fmt::format("layer {}, {}", i, what); };
    const AttentionConfig &a = model.attention, &b = said.attention;
    compare(in("query heads"), a.heads, b.heads);
    compare(in("key/value heads"), a.kv_heads, b.kv_heads);
    compare(in("head dim"), a.head_dim, b.head_dim);
    compare(in("window of keys"), a.window, b.window);
    compare(in("biases of q, k and v"), a.qkv_bias, b.qkv_bias);
    compare(in("bias of the output of attention"), a.output_bias, b.output_bias);
    compare(in("norms of query and key heads"), a.query_key_norms, b.query_key_norms);
    if (a.head_dim == b.head_dim) compare_numbers(in("scale of scores"), scale_of(a), scale_of(b));
    compare_numbers(in("cap of scores"), a.score_cap, b.score_cap);
    compare(in("norms of the outputs of attention and feed-forward"), model.output_norms, said.output_norms);
    if (a.head_dim == b.head_dim && !has_angles_of(a, b)) note(in("rotary angles"), angles_text(a), angles_text(b));
    compare(in("norms of value heads"), a.value_norms, b.value_norms);
    compare(in("keys that are the values"), a.keys_are_values, b.keys_are_values);
    compare(in("layer whose keys and values are used"), a.shared_layer.value_or(static_cast<int64_t>(i)),
            b.shared_layer.value_or(static_cast<int64_t>(i)));
    compare_feed_forward(in, model.feed_forward, said.feed_forward);
    compare(in("experts beside the feed-forward"), model.experts_beside.experts, said.experts_beside.experts);
    if (!model.has_experts_beside() || !said.has_experts_beside()) return;
    const auto of_experts = [&](const char* what) { return fmt::format("layer {}, beside: {}", i, what); };
    compare_feed_forward(of_experts, model.experts_beside, said.experts_beside);
  }
  template <class In>
  void compare_feed_forward(const In& in, const FeedForwardConfig& f, const FeedForwardConfig& g) {
    compare(in("hidden features"), f.hidden_dim, g.hidden_dim);
    compare(in("biases of the feed-forward"), f.bias, g.bias);
    compare(in("activation"), name_of(f.activation), name_of(g.activation));
    compare(in("experts"), f.experts, g.experts);
    if (f.experts == 0 || f.experts != g.experts) return;
    compare(in("experts of a token"), f.active_experts, g.active_experts);
    compare(in("weights of experts add up to 1"), f.route_norm, g.route_norm);
    compare(in("scales of the router"), f.scaled_router, g.scaled_router);
  }
  // All that differs between the two.
  const std::vector<Difference>& between(const DecoderConfig& model, const DecoderConfig& said) {
    compare("model dim", model.dim, said.dim);
    compare("vocabulary", model.vocab, said.vocab);
    compare("layers", model.layers.size(), said.layers.size());
    compare("tied embeddings", model.tied_embeddings, said.tied_embeddings);
    compare("epsilon", static_cast<float>(model.norm_eps), static_cast<float>(said.norm_eps));
    compare("norms multiply by 1 + weight", model.zero_centered_norms, said.zero_centered_norms);
    compare_numbers("scale of embeddings", model.embedding_scale, said.embedding_scale);
    compare_numbers("cap of logits", model.logits_cap, said.logits_cap);
    compare("features of each layer's input", model.per_layer_inputs, said.per_layer_inputs);
    compare("scalars of layers", model.layer_scalars, said.layer_scalars);
    // Many layers that differ mostly do so for one reason.
    constexpr size_t most = 8;
    for (size_t i = 0; i < std::min(model.layers.size(), said.layers.size()) && list_.size() < most; ++i)
      compare_layer(i, model.layers[i], said.layers[i]);
    return list_;
  }

 private:
  void note(const std::string& what, const std::string& model, const std::string& said) {
    list_.push_back({what, model, said});
  }

  std::vector<Difference> list_;
};

// Every line of all that differs between the two, each after a break; "" when nothing does. `told` has the name of what
// differs, what the model has and what is said.
std::string lines_between(const DecoderConfig& model, const DecoderConfig& said, const char* told) {
  std::string text;
  Differences differences;
  for (const Difference& d : differences.between(model, said))
    text += "\n  " + fmt::format(fmt::runtime(told), d.what, d.model, d.said);
  return text;
}

}  // namespace

void check_described(const DecoderConfig& config, const DecoderConfig& said, const std::string& place) {
  const std::string list = lines_between(config, said, "{}: {}, written as {}");
  TUTTI_CHECK(list.empty(), "{} does not describe {}:{}", place, config.name(), list);
}

void check_same_decoder(const DecoderConfig& file, const DecoderConfig& model, const std::string& path) {
  const std::string list = lines_between(model, file, "{0}: {2}, the model has {1}");
  TUTTI_CHECK(list.empty(),
              "{} describes another model than {}, which is unchanged:{}\nload the weights into a model that computes "
              "what the file says (model.path, or model.name and model.flavor)",
              path, model.name(), list);
}

void note_differences(const DecoderConfig& of_file, const DecoderConfig& model, PublishedConfig& file) {
  Differences differences;
  for (const Difference& d : differences.between(model, of_file)) file.refuse(d.what, d.said, d.model);
}

}  // namespace tutti::models
