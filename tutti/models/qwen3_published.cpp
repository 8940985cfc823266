#include "tutti/models/qwen3_published.h"

#include <fmt/format.h>

namespace tutti::models {
namespace {

// What a missing key means: the defaults of the classes Qwen3Config and Qwen3MoeConfig of transformers.
struct ClassDefaults {
  const char *model_type, *architecture;
  int64_t dim, layers, heads, kv_heads;
};
constexpr ClassDefaults kDense{"qwen3", "Qwen3ForCausalLM", 4096, 32, 32, 32},
    kMixture{"qwen3_moe", "Qwen3MoeForCausalLM", 2048, 24, 32, 4};
constexpr int64_t kVocab = 151936, kHeadDim = 128, kFfnDim = 22016, kExpertDim = 768, kExperts = 128,
                  kActiveExperts = 8, kFirstSlidingLayer = 28, kWindow = 4096;
constexpr double kTheta = 10000, kEps = 1e-6;

int64_t whole_of(PublishedConfig& published, std::string_view key, int64_t by_default) {
  const std::optional<JsonValue> found = published.find(key);
  return found ? found->whole() : by_default;
}

// Whether the class of the model reads the file. Missing keys mean the defaults of the class, so nothing else is
// compared when it is another.
bool is_of_class(const ClassDefaults& c, PublishedConfig& published) {
  const std::optional<JsonValue> type = published.find("model_type"), architectures = published.find("architectures");
  const bool is_type = !type || type->text() == c.model_type;
  const bool is_architecture =
      !architectures || (architectures->size() == 1 && (*architectures->begin()).value.text() == c.architecture);
  if (!is_architecture)
    published.refuse("architectures", shown_list(*architectures), fmt::format("[\"{}\"]", c.architecture));
  if (!is_type || (!type && !architectures))
    published.refuse("model_type", type ? type->shown() : "not given, nor are architectures",
                     fmt::format("\"{}\"", c.model_type));
  return is_type && is_architecture && (type || architectures);
}

void compare_sizes(const Qwen3Config& config, const ClassDefaults& c, PublishedConfig& published) {
  published.expect("hidden_size", config.dim, c.dim);
  published.expect("num_hidden_layers", config.layers, c.layers);
  published.expect("num_attention_heads", config.heads, c.heads);
  const int64_t heads = whole_of(published, "num_attention_heads", c.heads);
  published.expect("num_key_value_heads", config.kv_heads,
                   published.is_null("num_key_value_heads") ? heads : c.kv_heads);
  const bool has_default_head = config.experts == 0 && !published.is_null("head_dim");
  published.expect("head_dim", config.head_dim,
                   has_default_head || heads <= 0 ? kHeadDim : whole_of(published, "hidden_size", c.dim) / heads);
  published.expect("vocab_size", config.vocab, kVocab);
  published.expect("tie_word_embeddings", config.tied_embeddings, false);
}

void compare_experts(const Qwen3Config& config, PublishedConfig& published) {
  published.expect("moe_intermediate_size", config.ffn_dim, kExpertDim);
  const bool is_local =
      published.find("num_local_experts").has_value();  // the name under which transformers 5 writes the number
  published.expect(is_local ? "num_local_experts" : "num_experts", config.experts, kExperts);
  if (is_local && published.find("num_experts")) published.expect("num_experts", config.experts, kExperts);
  published.expect("num_experts_per_tok", config.active_experts, kActiveExperts);
  published.expect("norm_topk_prob", true, false);
  published.expect("decoder_sparse_step", int64_t{1}, int64_t{1});
  const std::optional<JsonValue> dense = published.find("mlp_only_layers");
  if (dense && dense->size() > 0) published.refuse("mlp_only_layers", shown_list(*dense), "experts in every layer");
}

// The base and the scaling of the angles in one object, or in one for each kind of layer.
void compare_angles(const std::string& key, const JsonValue& angles, double theta, PublishedConfig& published) {
  for (const char* kind : {"full_attention", "sliding_attention"}) {
    const std::optional<JsonValue> of_kind = angles.find_set(kind);
    if (of_kind) compare_angles(fmt::format("{}.{}", key, kind), *of_kind, theta, published);
  }
  for (const char* type : {"rope_type", "type"}) {
    const std::optional<JsonValue> found = angles.find_set(type);
    published.expect_found(fmt::format("{}.{}", key, type), found, std::string("default"), std::string("default"));
  }
  if (const auto found = angles.find_set("rope_theta"))
    published.expect_found(key + ".rope_theta", found, theta, kTheta);
  if (const auto found = angles.find_set("partial_rotary_factor"))
    published.expect_found(key + ".partial_rotary_factor", found, 1.0, 1.0);
}

// Whether an object, or one of a kind of layer in it, says the base.
bool says_theta(const std::optional<JsonValue>& angles) {
  return angles && (angles->find_set("rope_theta") || says_theta(angles->find_set("full_attention")));
}

// The newer spelling is rope_parameters, the older one rope_theta and rope_scaling. A file may hold both, and programs
// differ in which they read: each must agree.
void compare_rope(double theta, PublishedConfig& published) {
  const std::optional<JsonValue> parameters = published.find("rope_parameters"),
                                 scaling = published.find("rope_scaling"), base = published.find("rope_theta");
  for (const auto& angles : {parameters, scaling}) {
    if (angles && !angles->is_object()) angles->fail("is {}, expected an object", angles->shown());
  }
  if (base || !says_theta(scaling && scaling->size() > 0 ? scaling : parameters))
    published.expect_found("rope_theta", base, theta, kTheta);
  if (parameters) compare_angles("rope_parameters", *parameters, theta, published);
  if (scaling) compare_angles("rope_scaling", *scaling, theta, published);
  published.expect("partial_rotary_factor", 1.0, 1.0);
}

// Layers that see the last keys only. The class of mixtures has the window in all layers.
void compare_windows(const Qwen3Config& config, PublishedConfig& published) {
  const char* none = "full attention in every layer";
  const std::optional<JsonValue> types = published.find("layer_types"), uses = published.find("use_sliding_window");
  if (types) {
    if (static_cast<int64_t>(types->size()) != config.layers)
      published.refuse("layer_types", fmt::format("{} entries", types->size()),
                       fmt::format("{} layers", config.layers));
    for (const auto& [_, type] : *types) {
      if (type.text() != "full_attention") return published.refuse("layer_types", type.shown(), none);
    }
  }
  if (!uses || !uses->boolean() || published.is_null("sliding_window") || (types && config.experts == 0)) return;
  const int64_t window = whole_of(published, "sliding_window", kWindow),
                first = config.experts > 0 ? 0 : whole_of(published, "max_window_layers", kFirstSlidingLayer);
  if (first < config.layers)
    published.refuse("use_sliding_window",
                     fmt::format("true, with sliding_window = {} from layer {} on", window, first), none);
}

}  // namespace

void compare_published(const Qwen3Config& config, PublishedConfig& published) {
  const ClassDefaults& c = config.experts > 0 ? kMixture : kDense;
  if (!is_of_class(c, published)) return;
  for (const char* key : {"quantization_config", "compression_config"}) {
    const std::optional<JsonValue> found = published.find(key);
    if (!found) continue;
    const std::optional<JsonValue> method = found->is_object() ? found->find_set("quant_method") : std::nullopt;
    published.refuse(key, method ? fmt::format("quant_method = {}", method->shown()) : found->shown(),
                     "weights of floats");
  }
  compare_sizes(config, c, published);
  if (config.experts > 0) compare_experts(config, published);
  else published.expect("intermediate_size", config.ffn_dim, kFfnDim);
  published.expect("rms_norm_eps", config.norm_eps, kEps);
  compare_rope(config.rope_theta, published);
  compare_windows(config, published);
  const std::optional<JsonValue> act = published.find("hidden_act");
  if (!act || act->text() != "swish")
    published.expect("hidden_act", std::string("silu"), std::string("silu"));  // two names of one function
  published.expect("attention_bias", false, false);
  published.expect("attention_dropout", 0.0, 0.0);
}

}  // namespace tutti::models
