#include "tutti/train/tensor_ranks.h"

#include <bit>

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/nn/moe.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/tensor_parallel.h"
#include "tutti/train/expert_exchange.h"
#include "tutti/train/run_model.h"

namespace tutti::train {
namespace {

Tensor replicated(const Tensor& t, const dist::Mesh& mesh) { return dist::distribute_tensor(t, mesh, {}, {.src_data_rank = -1}); }
models::TokenBatch replicated(const models::TokenBatch& batch, const dist::Mesh& mesh) {
  return {replicated(batch.tokens, mesh), replicated(batch.positions, mesh), replicated(batch.first_key, mesh), batch.rows};
}

}  // namespace

TensorRanks divide_model(models::LanguageModel& model, const ParallelismConfig& config, comm::ProcessGroup* group) {
  const DataDegrees degrees = data_degrees(config, group == nullptr ? 1 : group->size());
  if (degrees.expert > 1) {
    const int64_t parts = degrees.expert_shard();
    const dist::Mesh all = dist::init_device_mesh("cpu", {degrees.data() / degrees.expert / parts, parts, degrees.expert}, {.names = {"dp_replicate", "efsdp", "ep"}});
    const dist::Mesh data = all->slice({"dp_replicate", "efsdp"});
    TensorRanks ranks{.experts = all->slice({"ep"}), .expert_replicas = data->flatten("edp")->group()};
    if (parts > 1) ranks.expert_storage = data->size(0) > 1 ? data : all->slice({"efsdp"});
    parallel::expert_parallel(model, ranks.experts, {.exchange = expert_exchange(config)});
    return ranks;
  }
  if (degrees.tensor == 1) return {};
  const dist::Mesh all = dist::init_device_mesh("cpu", {degrees.replicate, degrees.shard, degrees.tensor}, {.names = {"dp_replicate", "dp_shard", "tp"}});
  const dist::Mesh data = all->slice({"dp_replicate", "dp_shard"});
  TensorRanks ranks{all->slice({"tp"}), data->flatten("dp")->group(), degrees.replicate > 1 ? data : all->slice({"dp_shard"})};
  parallel::parallelize_module(model, ranks.mesh, model.tensor_parallel_plan(config.enable_sequence_parallel));
  return ranks;
}

void check_tensor_parallel(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  if (p.tensor_parallel_degree == 1) return;
  if (config.numerics.mode != "strict") return;
  const int64_t tokens = config.training.global_batch_tokens / config.numerics.virtual_shards;
  try {
    build_model(config)->check_tensor_parallel(p.tensor_parallel_degree, p.enable_sequence_parallel ? tokens : 0, config.numerics.token_grain);
  } catch (const UsageError& error) {
    throw UsageError(fmt::format("parallelism.tensor_parallel_degree = {}: {}", p.tensor_parallel_degree, error.what()));
  }
}

void check_expert_parallel(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  const int64_t degree = p.expert_parallel_degree, shards = config.numerics.virtual_shards;
  if (degree == 1) return;
  check_expert_exchange(config);
  const auto check = [&](bool is_so, const std::string& why) { TUTTI_CHECK(is_so, "parallelism.expert_parallel_degree = {}: {}", degree, why); };
  check(std::has_single_bit(static_cast<uint64_t>(degree)) && degree <= shards, fmt::format("expected a power of two up to the {} virtual shards, whose tree the gradients of experts follow", shards));
  check(p.data_parallel_schedule == "every_round", fmt::format("ranks that divide experts run neighbouring shards at once; set parallelism.data_parallel_schedule = every_round, with the same numbers"));
  check(p.tensor_parallel_degree == 1, "this version does not combine it with tensor_parallel_degree; set that to 1");
  const int64_t tokens = config.training.global_batch_tokens / shards, grain = config.numerics.token_grain;
  check(config.numerics.mode != "strict" || tokens % grain == 0,
        fmt::format("a virtual shard has {} tokens, which numerics.token_grain = {} does not divide, so tokens of several shards would be summed in another order; use shards that are multiples of it", tokens, grain));
  const std::unique_ptr<models::LanguageModel> model = build_model(config);
  const std::vector<nn::NamedMoE> layers = nn::moe_layers(*model);
  check(!layers.empty(), fmt::format("the model {} {} has no experts", config.model.name, config.model.flavor));
  for (const nn::NamedMoE& layer : layers) {
    const int64_t experts = layer.layer->options().router.num_experts;
    check(experts % degree == 0, fmt::format("'{}' has {} experts, which it does not divide", layer.name, experts));
  }
}

Tensor losses_of(const models::LanguageModel& model, const models::TokenBatch& batch, const Tensor& labels, const models::ForwardOptions& options, const dist::Mesh& mesh) {
  if (mesh == nullptr) return model.losses(batch, labels, options);
  return dist::full_tensor(model.losses(replicated(batch, mesh), replicated(labels, mesh), options));
}

Tensor logits_of(const models::LanguageModel& model, const models::TokenBatch& batch, const models::ForwardOptions& options, const dist::Mesh& mesh) {
  if (mesh == nullptr) return model.forward(batch, options);
  return dist::full_tensor(model.forward(replicated(batch, mesh), options));
}

}  // namespace tutti::train
