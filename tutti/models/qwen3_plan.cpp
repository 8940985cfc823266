#include "tutti/models/qwen3_plan.h"

#include <algorithm>
#include <bit>

#include "tutti/codegen/gemm/contraction_tree.h"
#include "tutti/core/error.h"
#include "tutti/core/tree_cut.h"
#include "tutti/ops/cross_entropy.h"

namespace tutti::models {

using parallel::ColwiseParallel, parallel::PrepareModuleInput, parallel::PrepareModuleInputOutput,
    parallel::PrepareModuleOutput, parallel::RowwiseParallel, parallel::SequenceParallel;

parallel::ParallelPlan qwen3_plan(const Qwen3Config& config, bool sequence_parallel) {
  // The stream of activations between the layers, [T, D].
  const Placement stream = sequence_parallel ? dist::shard(0) : dist::replicate();
  const std::string layer = "model.layers.*.";
  parallel::ParallelPlan plan{
      {"model.embed_tokens", RowwiseParallel{.output_layouts = stream}},
      {layer + "self_attn.q_proj", ColwiseParallel{}},
      {layer + "self_attn.k_proj", ColwiseParallel{}},
      {layer + "self_attn.v_proj", ColwiseParallel{}},
      {layer + "self_attn.o_proj", RowwiseParallel{.output_layouts = stream}},
  };
  if (config.experts > 0) {
    plan.push_back({layer + "mlp", PrepareModuleInputOutput{.input = {.desired_input_layouts = {dist::shard(0)}},
                                                            .output = {.desired_output_layouts = stream}}});
  } else {
    plan.push_back({layer + "mlp.gate_proj", ColwiseParallel{}});
    plan.push_back({layer + "mlp.up_proj", ColwiseParallel{}});
    plan.push_back({layer + "mlp.down_proj", RowwiseParallel{.output_layouts = stream}});
  }
  if (!config.tied_embeddings) plan.push_back({"lm_head", ColwiseParallel{}});
  if (!sequence_parallel) return plan;
  for (const char* norm : {"input_layernorm", "post_attention_layernorm"})
    plan.push_back({layer + norm, SequenceParallel{.sequence_dim = 0}});
  plan.push_back({"model.norm", SequenceParallel{.sequence_dim = 0}});
  // One gather in front of all the products of a layer, and one in front of the head.
  const PrepareModuleInput gather{.desired_input_layouts = {dist::replicate()}};
  plan.push_back({layer + "self_attn", gather});
  if (config.experts == 0) plan.push_back({layer + "mlp", gather});
  plan.push_back({"model", PrepareModuleOutput{}});
  return plan;
}

std::vector<DegreeLimit> tensor_parallel_limits(const Qwen3Config& c, int64_t tokens, int64_t grain) {
  const int64_t leaf = codegen::contraction_leaf(), classes = std::max<int64_t>(class_leaf(), leaf);
  const auto sum = [](const std::string& what, int64_t size, int64_t of_leaf) {
    return DegreeLimit{fmt::format("the sum over {} {}, whose leaves have {}", size, what, of_leaf),
                       largest_cut(size, of_leaf)};
  };
  std::vector<DegreeLimit> limits{
      {fmt::format("{} key/value head{}", c.kv_heads, c.kv_heads == 1 ? "" : "s"),
       int64_t{1} << std::countr_zero(static_cast<uint64_t>(c.kv_heads))},
      sum("elements of the query heads", c.heads * c.head_dim, leaf),
      sum("elements of the key heads", c.kv_heads * c.head_dim, leaf),
      sum("classes of the vocabulary", c.vocab, classes),
  };
  if (c.experts == 0) limits.push_back(sum("hidden features", c.ffn_dim, leaf));
  if (tokens > 0 && c.experts == 0)
    limits.push_back(sum("tokens of a batch, which sequence parallelism cuts", tokens, grain));
  if (tokens > 0 && c.experts > 0)
    limits.push_back(
        {fmt::format(
             "the {} tokens of a batch, which a mixture of experts cuts between ranges of numerics.token_grain = {}",
             tokens, grain),
         largest_range_cut(tokens, grain)});
  return limits;
}

int64_t largest_tensor_parallel_degree(const Qwen3Config& config, int64_t tokens, int64_t grain) {
  const std::vector<DegreeLimit> limits = tensor_parallel_limits(config, tokens, grain);
  return std::min_element(limits.begin(), limits.end(),
                          [](const DegreeLimit& a, const DegreeLimit& b) { return a.largest < b.largest; })
      ->largest;
}

void check_tensor_parallel(const Qwen3Config& config, int64_t degree, int64_t tokens, int64_t grain) {
  const int64_t largest = largest_tensor_parallel_degree(config, tokens, grain);
  if (degree >= 1 && std::has_single_bit(static_cast<uint64_t>(degree)) && degree <= largest) return;
  std::string bounds;
  for (const DegreeLimit& limit : tensor_parallel_limits(config, tokens, grain)) {
    if (limit.largest < degree)
      bounds += fmt::format("{}{} ({})", bounds.empty() ? "" : ", ", limit.what, limit.largest);
  }
  throw UsageError(
      fmt::format("qwen3 {}: tensor parallelism over {} ranks would not have the bits of one rank; expected a power of "
                  "two up to {}{}{}",
                  config.flavor, degree, largest, bounds.empty() ? "" : ", for degrees are bounded by ", bounds));
}

std::vector<parallel::PlanEntry> Qwen3::tensor_parallel_plan(bool sequence_parallel) const {
  return qwen3_plan(config_, sequence_parallel);
}
void Qwen3::check_tensor_parallel(int64_t degree, int64_t tokens, int64_t grain) const {
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
