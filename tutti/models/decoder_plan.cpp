#include "tutti/models/decoder_plan.h"

#include <algorithm>
#include <bit>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/core/error.h"
#include "tutti/core/tree_cut.h"
#include "tutti/ops/cross_entropy.h"

namespace tutti::models {

using parallel::ColwiseParallel, parallel::PrepareModuleInput, parallel::PrepareModuleInputOutput,
    parallel::PrepareModuleOutput, parallel::RowwiseParallel, parallel::SequenceParallel;

namespace {

bool is_mixture(const LayerConfig& layer) { return layer.feed_forward.experts > 0; }

template <class Is>
bool any_layer(const DecoderConfig& config, const Is& is) {
  return std::any_of(config.layers.begin(), config.layers.end(), is);
}

// The layers whose feed-forward is of one kind: "model.layers.*." where all are, else each of them.
struct LayersOfKind {
  std::string prefix;
  bool is_mixture;
};
std::vector<LayersOfKind> layers_by_kind(const DecoderConfig& config) {
  const bool first = is_mixture(config.layers.front());
  if (std::all_of(config.layers.begin(), config.layers.end(),
                  [&](const LayerConfig& layer) { return is_mixture(layer) == first; }))
    return {{"model.layers.*.", first}};
  std::vector<LayersOfKind> layers;
  for (size_t i = 0; i < config.layers.size(); ++i)
    layers.push_back({fmt::format("model.layers.{}.", i), is_mixture(config.layers[i])});
  return layers;
}

}  // namespace

parallel::ParallelPlan decoder_plan(const DecoderConfig& config, bool sequence_parallel) {
  // The stream of activations between the layers, [T, D].
  const Placement stream = sequence_parallel ? dist::shard(0) : dist::replicate();
  const std::string layer = "model.layers.*.";
  parallel::ParallelPlan plan{
      {"model.embed_tokens", RowwiseParallel{.output_layouts = stream}},
      {layer + "self_attn.q_proj", ColwiseParallel{}},
      {layer + "self_attn.k_proj", ColwiseParallel{}},
      {layer + "self_attn.o_proj", RowwiseParallel{.output_layouts = stream}},
  };
  if (any_layer(config, [](const LayerConfig& l) { return !l.attention.shared_layer && !l.attention.keys_are_values; }))
    plan.push_back({layer + "self_attn.v_proj", ColwiseParallel{}});
  if (config.per_layer_inputs > 0) {
    // Every rank projects the tokens that it has of the stream.
    const PrepareModuleInputOutput of_stream{.input = {.desired_input_layouts = {stream}},
                                             .output = {.desired_output_layouts = stream}};
    plan.push_back({"model.embed_tokens_per_layer", RowwiseParallel{.output_layouts = stream}});
    plan.push_back({"model.per_layer_model_projection", of_stream});
    plan.push_back({layer + "per_layer_input_gate", of_stream});
    plan.push_back({layer + "per_layer_projection", of_stream});
  }
  const PrepareModuleInputOutput by_tokens{.input = {.desired_input_layouts = {dist::shard(0)}},
                                           .output = {.desired_output_layouts = stream}};
  const bool has_experts_beside = any_layer(config, [](const LayerConfig& l) { return l.has_experts_beside(); });
  if (has_experts_beside) plan.push_back({layer + "moe", by_tokens});
  const std::vector<LayersOfKind> kinds = layers_by_kind(config);
  for (const auto& [prefix, has_experts] : kinds) {
    if (has_experts) {
      plan.push_back({prefix + "mlp", by_tokens});
    } else {
      plan.push_back({prefix + "mlp.gate_proj", ColwiseParallel{}});
      plan.push_back({prefix + "mlp.up_proj", ColwiseParallel{}});
      plan.push_back({prefix + "mlp.down_proj", RowwiseParallel{.output_layouts = stream}});
    }
  }
  if (!config.tied_embeddings) plan.push_back({"lm_head", ColwiseParallel{}});
  if (!sequence_parallel) return plan;
  std::vector<const char*> norms{"input_layernorm", "post_attention_layernorm"};
  if (any_layer(config, [](const LayerConfig& l) { return l.output_norms; }))
    norms.insert(norms.end(), {"pre_feedforward_layernorm", "post_feedforward_layernorm"});
  if (has_experts_beside) norms.insert(norms.end(), {"post_feedforward_layernorm_1", "post_feedforward_layernorm_2"});
  if (config.per_layer_inputs > 0) norms.push_back("post_per_layer_input_norm");
  for (const char* norm : norms) plan.push_back({layer + norm, SequenceParallel{.sequence_dim = 0}});
  plan.push_back({"model.norm", SequenceParallel{.sequence_dim = 0}});
  // One gather in front of all the products of a layer, and one in front of the head.
  const PrepareModuleInput gather{.desired_input_layouts = {dist::replicate()}};
  plan.push_back({layer + "self_attn", gather});
  for (const auto& [prefix, has_experts] : kinds) {
    if (!has_experts) plan.push_back({prefix + "mlp", gather});
  }
  plan.push_back({"model", PrepareModuleOutput{}});
  return plan;
}

std::vector<DegreeLimit> tensor_parallel_limits(const DecoderConfig& c, int64_t tokens, int64_t grain) {
  const int64_t leaf = codegen::contraction_leaf(), classes = std::max<int64_t>(class_leaf(), leaf);
  const auto sum = [](const std::string& what, int64_t size, int64_t of_leaf) {
    return DegreeLimit{fmt::format("the sum over {} {}, whose leaves have {}", size, what, of_leaf),
                       largest_cut(size, of_leaf)};
  };
  std::vector<DegreeLimit> limits;
  const auto add = [&](DegreeLimit limit) {
    const bool is_known =
        std::any_of(limits.begin(), limits.end(), [&](const DegreeLimit& known) { return known.what == limit.what; });
    if (!is_known) limits.push_back(std::move(limit));
  };
  for (const LayerConfig& layer : c.layers) {
    const AttentionConfig& a = layer.attention;
    add({fmt::format("{} key/value head{}", a.kv_heads, a.kv_heads == 1 ? "" : "s"),
         int64_t{1} << std::countr_zero(static_cast<uint64_t>(a.kv_heads))});
    add(sum("elements of the query heads", a.heads * a.head_dim, leaf));
    if (!a.shared_layer) add(sum("elements of the key heads", a.kv_heads * a.head_dim, leaf));
  }
  add(sum("classes of the vocabulary", c.vocab, classes));
  for (const LayerConfig& layer : c.layers) {
    if (!is_mixture(layer)) add(sum("hidden features", layer.feed_forward.hidden_dim, leaf));
  }
  const bool has_dense = !std::all_of(c.layers.begin(), c.layers.end(), is_mixture);
  if (tokens > 0 && has_dense) add(sum("tokens of a batch, which sequence parallelism cuts", tokens, grain));
  if (tokens > 0 && c.has_experts())
    add({fmt::format(
             "the {} tokens of a batch, which a mixture of experts cuts between ranges of numerics.token_grain = {}",
             tokens, grain),
         largest_range_cut(tokens, grain)});
  return limits;
}

int64_t largest_tensor_parallel_degree(const DecoderConfig& config, int64_t tokens, int64_t grain) {
  const std::vector<DegreeLimit> limits = tensor_parallel_limits(config, tokens, grain);
  return std::min_element(limits.begin(), limits.end(),
                          [](const DegreeLimit& a, const DegreeLimit& b) { return a.largest < b.largest; })
      ->largest;
}

void check_tensor_parallel(const DecoderConfig& config, int64_t degree, int64_t tokens, int64_t grain) {
  const int64_t largest = largest_tensor_parallel_degree(config, tokens, grain);
  if (degree >= 1 && std::has_single_bit(static_cast<uint64_t>(degree)) && degree <= largest) return;
  std::string bounds;
  for (const DegreeLimit& limit : tensor_parallel_limits(config, tokens, grain)) {
    if (limit.largest < degree)
      bounds += fmt::format("{}{} ({})", bounds.empty() ? "" : ", ", limit.what, limit.largest);
  }
  throw UsageError(
      fmt::format("{}: tensor parallelism over {} ranks would not have the bits of one rank; expected a power of "
                  "two up to {}{}{}",
                  config.name(), degree, largest, bounds.empty() ? "" : ", for degrees are bounded by ", bounds));
}

void check_divided_heads(const DecoderConfig& config, int64_t degree) {
  for (const LayerConfig& layer : config.layers)
    TUTTI_CHECK(layer.attention.kv_heads % degree == 0,
                "{}: {} ranks cannot divide {} key/value head{}; expected a divisor of the heads of every layer",
                config.name(), degree, layer.attention.kv_heads, layer.attention.kv_heads == 1 ? "" : "s");
}

std::vector<parallel::PlanEntry> Decoder::tensor_parallel_plan(bool sequence_parallel) const {
  return decoder_plan(config_, sequence_parallel);
}
void Decoder::check_tensor_parallel(int64_t degree, int64_t tokens, int64_t grain) const {
  models::check_tensor_parallel(config_, degree, tokens, grain);
}

Tensor replicated(const Tensor& t, const dist::Mesh& mesh) {
  return dist::distribute_tensor(t, mesh, {}, {.src_data_rank = -1});
}

TokenBatch replicated(const TokenBatch& batch, const dist::Mesh& mesh) {
  return {replicated(batch.tokens, mesh), replicated(batch.positions, mesh), replicated(batch.first_key, mesh),
          batch.rows};
}

}  // namespace tutti::models
