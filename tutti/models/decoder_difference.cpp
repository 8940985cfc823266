#include "tutti/models/decoder_difference.h"

#include <algorithm>
#include <cmath>

#include "tutti/core/error.h"

namespace tutti::models {
namespace {

bool is_near(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(a); }

bool has_angles_of(const AttentionConfig& a, const AttentionConfig& b) {
  if (a.head_dim != b.head_dim || !is_near(rope_attention_factor(a.rope), rope_attention_factor(b.rope))) return false;
  const std::vector<double> f = rope_frequencies(a.rope, a.head_dim), g = rope_frequencies(b.rope, b.head_dim);
  return std::equal(f.begin(), f.end(), g.begin(), g.end(), is_near);
}

std::string angles_text(const AttentionConfig& a) {
  const RopeConfig& r = a.rope;
  if (!r.divisors.empty()) {
    std::string text = fmt::format("base {}, divided by", r.theta);
    for (const double divisor : r.divisors) text += fmt::format(" {:.6g}", divisor);
    return text;
  }
  if (r.type == RopeType::plain) return fmt::format("base {}", r.theta);
  return fmt::format("base {}, {} by {}, from {} positions, cosines times {}{}", r.theta, name_of(r.type), r.factor,
                     r.original_positions, rope_attention_factor(r), r.truncate ? "" : ", blended between any dims");
}

class Differences {
 public:
  // `told` has the name of what differs, what the model has and what is said.
  explicit Differences(const char* told) : told_(told) {}

  template <class T>
  void compare(const std::string& what, const T& model, const T& said) {
    if (model != said) note(what, fmt::format("{}", model), fmt::format("{}", said));
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
    if (a.head_dim == b.head_dim && !has_angles_of(a, b)) note(in("rotary angles"), angles_text(a), angles_text(b));
    const FeedForwardConfig &f = model.feed_forward, &g = said.feed_forward;
    compare(in("hidden features"), f.hidden_dim, g.hidden_dim);
    compare(in("biases of the feed-forward"), f.bias, g.bias);
    compare(in("experts"), f.experts, g.experts);
    if (f.experts == 0 || f.experts != g.experts) return;
    compare(in("experts of a token"), f.active_experts, g.active_experts);
    compare(in("weights of experts add up to 1"), f.route_norm, g.route_norm);
  }
  // Every line of all that differs between the two, each after a break; "" when nothing does.
  std::string between(const DecoderConfig& model, const DecoderConfig& said) {
    compare("model dim", model.dim, said.dim);
    compare("vocabulary", model.vocab, said.vocab);
    compare("layers", model.layers.size(), said.layers.size());
    compare("tied embeddings", model.tied_embeddings, said.tied_embeddings);
    compare("epsilon", static_cast<float>(model.norm_eps), static_cast<float>(said.norm_eps));
    // Many layers that differ mostly do so for one reason.
    constexpr size_t most = 8;
    for (size_t i = 0; i < std::min(model.layers.size(), said.layers.size()) && lines_.size() < most; ++i)
      compare_layer(i, model.layers[i], said.layers[i]);
    std::string list;
    for (const std::string& line : lines_) list += "\n  " + line;
    return list;
  }

 private:
  void note(const std::string& what, const std::string& model, const std::string& said) {
    lines_.push_back(fmt::format(fmt::runtime(told_), what, model, said));
  }

  const char* const told_;
  std::vector<std::string> lines_;
};

}  // namespace

void check_described(const DecoderConfig& config, const DecoderConfig& said, const std::string& place) {
  const std::string list = Differences("{}: {}, written as {}").between(config, said);
  TUTTI_CHECK(list.empty(), "{} does not describe {}:{}", place, config.name(), list);
}

void check_same_decoder(const DecoderConfig& file, const DecoderConfig& model, const std::string& path) {
  const std::string list = Differences("{0}: {2}, the model has {1}").between(model, file);
  TUTTI_CHECK(list.empty(),
              "{} describes another model than {}, which is unchanged:{}\nload the weights into a model that computes "
              "what the file says (model.path, or model.name and model.flavor)",
              path, model.name(), list);
}

}  // namespace tutti::models
