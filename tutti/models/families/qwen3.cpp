// Qwen3, dense or with a mixture of experts. Source: the published configurations and weights of Qwen3.
#include "tutti/models/families/qwen3.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/models/family.h"
#include "tutti/models/published_decoder.h"
#include "tutti/models/published_writer.h"

namespace tutti::models {
namespace {

const std::vector<DecoderSizes>& sizes() {
  static const std::vector<DecoderSizes> table = {
      // A model that trains in a second, to try out whatever surrounds training.
      {.flavor = "tiny",
       .dim = 32,
       .layers = 2,
       .heads = 2,
       .kv_heads = 1,
       .ffn_dim = 64,
       .vocab = 320,
       .tied_embeddings = true,
       .head_dim = 16},
      // The smallest that tensor parallelism divides over four ranks.
      {.flavor = "tiny-tp4",
       .dim = 32,
       .layers = 2,
       .heads = 8,
       .kv_heads = 4,
       .ffn_dim = 512,
       .vocab = 2048,
       .tied_embeddings = true},
      // A model that a laptop trains in minutes: the quickstart.
      {.flavor = "quickstart",
       .dim = 192,
       .layers = 4,
       .heads = 6,
       .kv_heads = 3,
       .ffn_dim = 512,
       .vocab = 2048,
       .tied_embeddings = true,
       .head_dim = 32},
      // As large as the quickstart, and legal for tensor parallelism over four ranks.
      {.flavor = "quickstart-tp4",
       .dim = 128,
       .layers = 4,
       .heads = 8,
       .kv_heads = 4,
       .ffn_dim = 512,
       .vocab = 2048,
       .tied_embeddings = true},
      {.flavor = "debugmodel",
       .dim = 256,
       .layers = 8,
       .heads = 16,
       .kv_heads = 8,
       .ffn_dim = 3072,
       .vocab = 2048,
       .tied_embeddings = true},
      {.flavor = "0.6B",
       .dim = 1024,
       .layers = 28,
       .heads = 16,
       .kv_heads = 8,
       .ffn_dim = 3072,
       .vocab = 151936,
       .tied_embeddings = true},
      {.flavor = "1.7B",
       .dim = 2048,
       .layers = 28,
       .heads = 16,
       .kv_heads = 8,
       .ffn_dim = 6144,
       .vocab = 151936,
       .tied_embeddings = true},
      {.flavor = "4B",
       .dim = 2560,
       .layers = 36,
       .heads = 32,
       .kv_heads = 8,
       .ffn_dim = 9728,
       .vocab = 151936,
       .tied_embeddings = true},
      {.flavor = "8B",
       .dim = 4096,
       .layers = 36,
       .heads = 32,
       .kv_heads = 8,
       .ffn_dim = 12288,
       .vocab = 151936,
       .tied_embeddings = false},
      {.flavor = "14B",
       .dim = 5120,
       .layers = 40,
       .heads = 40,
       .kv_heads = 8,
       .ffn_dim = 17408,
       .vocab = 151936,
       .tied_embeddings = false},
      {.flavor = "32B",
       .dim = 5120,
       .layers = 64,
       .heads = 64,
       .kv_heads = 8,
       .ffn_dim = 25600,
       .vocab = 151936,
       .tied_embeddings = false},
      // Mixtures of experts.
      {.flavor = "tiny_moe",
       .dim = 32,
       .layers = 2,
       .heads = 2,
       .kv_heads = 1,
       .ffn_dim = 24,
       .vocab = 320,
       .tied_embeddings = true,
       .head_dim = 16,
       .experts = 6,
       .active_experts = 2},
      // As small, with experts that two, four or eight ranks can divide.
      {.flavor = "tiny_moe-ep8",
       .dim = 32,
       .layers = 2,
       .heads = 2,
       .kv_heads = 1,
       .ffn_dim = 24,
       .vocab = 320,
       .tied_embeddings = true,
       .head_dim = 16,
       .experts = 8,
       .active_experts = 3},
      // The smallest that tensor parallelism divides over four ranks as well.
      {.flavor = "tiny_moe-tp4",
       .dim = 32,
       .layers = 2,
       .heads = 8,
       .kv_heads = 4,
       .ffn_dim = 24,
       .vocab = 2048,
       .tied_embeddings = true,
       .experts = 8,
       .active_experts = 3},
      {.flavor = "debugmodel_moe",
       .dim = 256,
       .layers = 8,
       .heads = 16,
       .kv_heads = 8,
       .ffn_dim = 768,
       .vocab = 2048,
       .tied_embeddings = true,
       .experts = 64,
       .active_experts = 8},
      {.flavor = "30B-A3B",
       .dim = 2048,
       .layers = 48,
       .heads = 32,
       .kv_heads = 4,
       .ffn_dim = 768,
       .vocab = 151936,
       .tied_embeddings = false,
       .experts = 128,
       .active_experts = 8},
      {.flavor = "235B-A22B",
       .dim = 4096,
       .layers = 94,
       .heads = 64,
       .kv_heads = 4,
       .ffn_dim = 1536,
       .vocab = 151936,
       .tied_embeddings = false,
       .experts = 128,
       .active_experts = 8},
  };
  return table;
}

std::vector<DecoderConfig> flavors() {
  std::vector<DecoderConfig> list;
  for (const DecoderSizes& s : sizes()) list.push_back(qwen3(s));
  return list;
}

// The defaults of the classes Qwen3Config and Qwen3MoeConfig of transformers.
constexpr PublishedClass kDense{.model_type = "qwen3",
                                .architecture = "Qwen3ForCausalLM",
                                .dim = 4096,
                                .layers = 32,
                                .heads = 32,
                                .vocab = 151936,
                                .kv_heads = 32,
                                .head_dim = 128};
constexpr PublishedClass kMixture{.model_type = "qwen3_moe",
                                  .architecture = "Qwen3MoeForCausalLM",
                                  .dim = 2048,
                                  .layers = 24,
                                  .heads = 32,
                                  .vocab = 151936,
                                  .kv_heads = 4,
                                  .head_dim = std::nullopt};
constexpr int64_t kFfnDim = 22016, kFfnDimOfMixtures = 6144, kExpertDim = 768, kExperts = 128, kActiveExperts = 8,
                  kFirstSlidingLayer = 28, kWindow = 4096;

// The layers that mlp_only_layers and decoder_sparse_step make dense.
void read_dense_layers(DecoderConfig& config, PublishedConfig& file, const DecoderConfig* model) {
  const int64_t step = file.take("decoder_sparse_step", int64_t{1});
  const std::optional<JsonValue> only = file.find("mlp_only_layers");
  if (step < 1) return file.refuse("decoder_sparse_step", fmt::format("{}", step), "1 or more");
  std::vector<bool> is_dense(config.layers.size());
  for (size_t i = 0; i < is_dense.size(); ++i) is_dense[i] = (static_cast<int64_t>(i) + 1) % step != 0;
  if (only) {
    for (const auto& [_, layer] : *only) {
      const int64_t i = layer.whole();
      if (i >= 0 && i < std::ssize(is_dense)) is_dense[static_cast<size_t>(i)] = true;
    }
  }
  const bool has_dense = std::find(is_dense.begin(), is_dense.end(), true) != is_dense.end();
  const int64_t hidden_dim = has_dense ? file.take("intermediate_size", kFfnDimOfMixtures) : 0;
  for (size_t i = 0; i < is_dense.size(); ++i) {
    if (is_dense[i]) config.layers[i].feed_forward = {.hidden_dim = hidden_dim};
  }
  if (model == nullptr || model->layers.size() != config.layers.size()) return;
  const bool is_same =
      std::equal(config.layers.begin(), config.layers.end(), model->layers.begin(),
                 [](const LayerConfig& a, const LayerConfig& b) {
                   return (a.feed_forward.experts > 0) == (b.feed_forward.experts > 0) &&
                          (a.feed_forward.experts > 0 || a.feed_forward.hidden_dim == b.feed_forward.hidden_dim);
                 });
  if (is_same) return;
  const std::string of_model = "experts in every layer";
  if (step != 1) file.refuse("decoder_sparse_step", fmt::format("{}", step), "1");
  if (only && only->size() > 0) file.refuse("mlp_only_layers", shown_list(*only), of_model);
}

// Experts of each layer that is not made dense.
void read_experts(DecoderConfig& config, PublishedConfig& file, const DecoderConfig* model) {
  const FeedForwardConfig* of_model = nullptr;
  if (model != nullptr) {
    const auto found = std::find_if(model->layers.begin(), model->layers.end(),
                                    [](const LayerConfig& l) { return l.feed_forward.experts > 0; });
    of_model = &(found == model->layers.end() ? model->layers.front() : *found).feed_forward;
  }
  const auto part = [&](auto FeedForwardConfig::* member) {
    return of_model == nullptr ? nullptr : &(of_model->*member);
  };
  FeedForwardConfig experts;
  experts.hidden_dim = file.take("moe_intermediate_size", kExpertDim, part(&FeedForwardConfig::hidden_dim));
  // transformers 5 writes the number under the first name; a file with both must agree with itself.
  const bool is_local = file.find("num_local_experts").has_value();
  const char* key = is_local ? "num_local_experts" : "num_experts";
  experts.experts = file.take(key, kExperts, part(&FeedForwardConfig::experts));
  if (is_local && file.find("num_experts"))
    file.expect("num_experts", of_model == nullptr ? experts.experts : of_model->experts, kExperts);
  experts.active_experts = file.take("num_experts_per_tok", kActiveExperts, part(&FeedForwardConfig::active_experts));
  experts.route_norm = file.take("norm_topk_prob", false, part(&FeedForwardConfig::route_norm));
  for (LayerConfig& layer : config.layers) layer.feed_forward = experts;
  read_dense_layers(config, file, model);
}

DecoderConfig read(PublishedConfig& file, const DecoderConfig* model) {
  const bool has_experts = model != nullptr ? model->has_experts() : model_type_of(file) == kMixture.model_type;
  const PublishedClass& c = has_experts ? kMixture : kDense;
  if (!is_of_class(c, file)) return {};
  refuse_quantized(file);
  DecoderConfig config = read_decoder(c, file, model);
  if (has_experts) read_experts(config, file, model);
  else read_feed_forward("intermediate_size", kFfnDim, config, file, model);
  for (LayerConfig& layer : config.layers) layer.attention.query_key_norms = true;
  // The class of mixtures has the window in all layers.
  const auto first = has_experts ? std::optional<int64_t>() : kFirstSlidingLayer;
  read_windows(windows_from_a_layer_on(kWindow, first, file), config, file, model);
  read_activation(file);
  file.expect("attention_bias", false, false);
  return config;
}

// Layers without experts are listed, so that each layer has them where the list does not name it.
void write_experts(const DecoderConfig& config, PublishedKeys& keys) {
  std::vector<int64_t> dense;
  for (size_t i = 0; i < config.layers.size(); ++i) {
    const FeedForwardConfig& f = config.layers[i].feed_forward;
    if (f.experts == 0) {
      dense.push_back(static_cast<int64_t>(i));
      keys.set("intermediate_size", f.hidden_dim);
      continue;
    }
    keys.set("moe_intermediate_size", f.hidden_dim);
    keys.set("num_experts", f.experts);
    keys.set("num_experts_per_tok", f.active_experts);
    keys.set("norm_topk_prob", f.route_norm);
  }
  keys.set("mlp_only_layers", dense);
  keys.set("decoder_sparse_step", int64_t{1});
}

void write(const DecoderConfig& config, PublishedKeys& keys) {
  const bool has_experts = config.has_experts();
  write_decoder(has_experts ? kMixture : kDense, config, keys);
  if (has_experts) write_experts(config, keys);
  else keys.set("intermediate_size", config.layers.front().feed_forward.hidden_dim);
  write_windows_from_a_layer_on(config, !has_experts, keys);
  keys.set("attention_bias", false);
}

}  // namespace

DecoderConfig qwen3(const DecoderSizes& sizes) {
  DecoderConfig config = decoder_of("qwen3", sizes);
  for (LayerConfig& layer : config.layers) layer.attention.query_key_norms = true;
  return config;
}

DecoderSizes qwen3_sizes(std::string_view flavor) {
  std::vector<std::string> names;
  for (const DecoderSizes& s : sizes()) {
    if (s.flavor == flavor) return s;
    names.push_back(s.flavor);
  }
  throw UsageError(unknown_name_message("qwen3 flavor", flavor, names));
}

TUTTI_FAMILY(qwen3) = {.flavors = flavors,
                       .model_types = {"qwen3", "qwen3_moe"},
                       .read = read,
                       .write = write,
                       .gguf = {{.name = "qwen3"}, {.name = "qwen3moe", .has_experts = true}}};

}  // namespace tutti::models
