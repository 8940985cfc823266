#include "tutti/models/gguf_decoder.h"

#include <algorithm>
#include <filesystem>

#include "tutti/core/error.h"
#include "tutti/models/gguf_keys.h"

namespace tutti::models {
namespace {

constexpr const char* kFrequencies = "rope_freqs.weight";

// llama.cpp divides the frequency of each pair by a number that the file may hold.
std::vector<double> divisors_in(const ModelFile& file, int64_t head_dim) {
  if (!file.contains(kFrequencies)) return {};
  const ModelTensor& entry = file.entry(kFrequencies);
  TUTTI_CHECK(entry.sizes == Extents{head_dim / 2} && entry.dtype == DType::f32 && !entry.blocks,
              "{}: {} is {}; expected [{}] f32, a divisor for each pair of a head", file.path(), kFrequencies,
              describe(entry), head_dim / 2);
  const Tensor divisors = file.tensor(kFrequencies);
  const std::vector<double> values(divisors.data<float>(), divisors.data<float>() + divisors.numel());
  for (size_t i = 0; i < values.size(); ++i)
    TUTTI_CHECK(values[i] > 0, "{}: {}: the divisor of pair {} is {}; expected a positive number", file.path(),
                kFrequencies, i, values[i]);
  return values;
}

RopeConfig rope_in(const GgufKeys& keys, const ModelFile& file, int64_t head_dim) {
  RopeConfig rope{.theta = keys.positive("rope.freq_base", 10000)};
  keys.expect("rope.dimension_count", static_cast<double>(head_dim));
  rope.divisors = divisors_in(file, head_dim);
  const std::optional<MetadataField> type = keys.find("rope.scaling.type");
  if (!type || type->text() == "none") {
    keys.expect("rope.scale_linear", 1);  // the older spelling of linear scaling
    return rope;
  }
  if (type->text() != "linear" && type->text() != "yarn")
    type->fail("is {}, which is not computed here; expected none, linear or yarn", type->shown());
  rope.type = type->text() == "linear" ? RopeType::linear : RopeType::yarn;
  rope.factor = keys.positive("rope.scaling.factor");
  if (rope.type == RopeType::linear) return rope;
  rope.original_positions = keys.whole("rope.scaling.original_context_length");
  rope.beta_fast = keys.number("rope.scaling.yarn_beta_fast", rope.beta_fast);
  rope.beta_slow = keys.number("rope.scaling.yarn_beta_slow", rope.beta_slow);
  for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor", "rope.scaling.yarn_ext_factor"})
    keys.expect(key, 1);
  keys.expect("rope.scaling.yarn_log_multiplier", 0);
  return rope;
}

FeedForwardConfig feed_forward_in(const GgufKeys& keys, const GgufArchitecture& architecture, const ModelFile& file) {
  const int64_t experts = keys.whole("expert_count", 0);
  const bool has_bias = file.contains("blk.0.ffn_gate.bias");
  if (architecture.sizes_by_layer) return {.bias = has_bias};
  if (experts == 0) return {.hidden_dim = keys.whole("feed_forward_length"), .bias = has_bias};
  if (!architecture.has_experts)
    keys.find("expert_count")
        ->fail("is {}, and mixtures of experts of the architecture {} are not read here", experts, architecture.name);
  keys.expect("expert_shared_count", 0);
  keys.expect("expert_shared_feed_forward_length", 0);
  return {.hidden_dim = keys.whole(architecture.expert_length),
          .experts = experts,
          .active_experts = keys.whole("expert_used_count"),
          .route_norm = true};
}

void read_sizes_by_layer(const GgufKeys& keys, DecoderConfig& config) {
  const size_t layers = config.layers.size();
  const std::vector<int64_t> features = keys.of_layers("feed_forward_length", layers),
                             heads = keys.of_layers("attention.head_count_kv", layers,
                                                    layers == 0 ? 1 : config.layers[0].attention.heads);
  for (size_t i = 0; i < layers; ++i)
    config.layers[i].feed_forward.hidden_dim = features[i], config.layers[i].attention.kv_heads = heads[i];
}

// Without the divisors, layers that see all keys would turn every pair of a head.
void check_divisors(const ModelFile& file, const DecoderConfig& config) {
  if (file.contains(kFrequencies)) return;
  for (size_t i = 0; i < config.layers.size(); ++i)
    TUTTI_CHECK(config.layers[i].attention.window > 0,
                "{}: the tensor {} is missing, by which the rotary frequencies of layer {} are divided, as it sees all "
                "keys; convert the model again",
                file.path(), kFrequencies, i);
}

}  // namespace

std::string gguf_architecture(const ModelFile& file) { return file.metadata().at("general.architecture").text(); }

DecoderConfig read_gguf_decoder(const ModelFile& file, std::string_view family, const GgufArchitecture& architecture) {
  const GgufKeys keys(file, architecture.name);
  DecoderConfig config{.family = std::string(family), .flavor = std::filesystem::path(file.path()).filename().string()};
  config.dim = keys.whole("embedding_length");
  const ModelTensor& embedding = file.entry("token_embd.weight");
  config.vocab = embedding.sizes.empty() ? 0 : embedding.sizes[0];
  config.tied_embeddings = !file.contains("output.weight");
  config.norm_eps = keys.number("attention.layer_norm_rms_epsilon");
  LayerConfig layer;
  AttentionConfig& a = layer.attention;
  a.heads = keys.whole("attention.head_count");
  if (!architecture.sizes_by_layer) a.kv_heads = keys.whole("attention.head_count_kv", a.heads);
  a.head_dim = keys.whole("attention.key_length", config.dim / a.heads);
  keys.expect("attention.value_length", static_cast<double>(a.head_dim));
  if (architecture.read == nullptr) keys.expect("attention.sliding_window", 0);
  if (const auto causal = keys.find("attention.causal"); causal && !causal->boolean())
    causal->fail("is false, and decoders see earlier tokens only");
  a.qkv_bias = file.contains("blk.0.attn_q.bias"), a.output_bias = file.contains("blk.0.attn_output.bias");
  a.query_key_norms = file.contains("blk.0.attn_q_norm.weight");
  a.rope = rope_in(keys, file, a.head_dim);
  layer.feed_forward = feed_forward_in(keys, architecture, file);
  const int64_t layers = keys.whole("block_count");
  // Each layer has tensors, so that a number that the file cannot mean takes no memory.
  TUTTI_CHECK(layers <= std::ssize(file.entries()), "{}: {}.block_count is {}, and the file has {} tensors",
              file.path(), architecture.name, layers, file.entries().size());
  config.layers.assign(static_cast<size_t>(layers), layer);
  if (architecture.sizes_by_layer) read_sizes_by_layer(keys, config);
  if (architecture.read != nullptr) architecture.read(keys, config);
  if (architecture.needs_divisors) check_divisors(file, config);
  validate(config);
  return config;
}

}  // namespace tutti::models
