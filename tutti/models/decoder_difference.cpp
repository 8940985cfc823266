#include "tutti/models/decoder_difference.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/core/error.h"
#include "tutti/models/published_config.h"

namespace tutti::models {
namespace {

class Differences {
 public:
  template <class T>
  void compare(const std::string& what, const T& of_file, const T& of_model) {
    if (of_file != of_model) note(fmt::format("{}: {}, the model has {}", what, of_file, of_model));
  }
  void note(std::string difference) { list_.push_back(std::move(difference)); }
  const std::vector<std::string>& list() const { return list_; }

 private:
  std::vector<std::string> list_;
};

bool are_close(double a, double b) { return std::abs(a - b) <= 1e-6 * std::abs(b); }

bool turn_alike(const AttentionConfig& a, const AttentionConfig& b) {
  const std::vector<double> x = rope_frequencies(a.rope, a.head_dim), y = rope_frequencies(b.rope, b.head_dim);
  return are_close(rope_attention_factor(a.rope), rope_attention_factor(b.rope)) &&
         std::equal(x.begin(), x.end(), y.begin(), y.end(), are_close);
}

void compare_layers(size_t i, const LayerConfig& file, const LayerConfig& model, Differences& differences) {
  const auto& [a, f] = file;
  const auto& [b, g] = model;
  const auto in_layer = [&](const char* what) { return fmt::format("layer {}, {}", i, what); };
  differences.compare(in_layer("heads"), a.heads, b.heads);
  differences.compare(in_layer("key/value heads"), a.kv_heads, b.kv_heads);
  differences.compare(in_layer("elements of a head"), a.head_dim, b.head_dim);
  differences.compare(in_layer("keys of a window, 0 for all"), a.window, b.window);
  differences.compare(in_layer("biases of queries, keys and values"), a.qkv_bias, b.qkv_bias);
  differences.compare(in_layer("bias of the output of attention"), a.output_bias, b.output_bias);
  differences.compare(in_layer("norms of queries and keys"), a.query_key_norms, b.query_key_norms);
  differences.compare(in_layer("hidden features"), f.hidden_dim, g.hidden_dim);
  differences.compare(in_layer("biases of the feed-forward"), f.bias, g.bias);
  differences.compare(in_layer("experts, 0 for none"), f.experts, g.experts);
  differences.compare(in_layer("experts of a token"), f.active_experts, g.active_experts);
  if (f.experts > 0)
    differences.compare(in_layer("weights of a token's experts that add up to 1"), f.route_norm, g.route_norm);
  if (a.head_dim == b.head_dim && !turn_alike(a, b))
    differences.note(in_layer("angles of positions: others than those of the model"));
}

}  // namespace

void check_same_decoder(const DecoderConfig& file, const DecoderConfig& model, const std::string& path) {
  Differences differences;
  differences.compare("model dim", file.dim, model.dim);
  differences.compare("vocabulary", file.vocab, model.vocab);
  differences.compare("layers", file.layers.size(), model.layers.size());
  differences.compare("tied embeddings", file.tied_embeddings, model.tied_embeddings);
  if (!are_close(file.norm_eps, model.norm_eps)) differences.compare("epsilon of norms", file.norm_eps, model.norm_eps);
  // The other layers mostly differ in the same way, so the first that differs is enough.
  for (size_t i = 0; i < std::min(file.layers.size(), model.layers.size()) && differences.list().empty(); ++i)
    compare_layers(i, file.layers[i], model.layers[i], differences);
  TUTTI_CHECK(differences.list().empty(),
              "{} describes another model than {}, which is unchanged:\n  {}\nload the weights into a model that "
              "computes what the file says (model.path, or model.name and model.flavor)",
              path, model.name(), joined(differences.list(), "\n  "));
}

}  // namespace tutti::models
