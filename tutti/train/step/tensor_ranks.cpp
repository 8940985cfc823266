#include "tutti/train/step/tensor_ranks.h"

#include <bit>

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/models/decoder_config.h"
#include "tutti/nn/moe.h"
#include "tutti/parallel/expert_parallel.h"
#include "tutti/parallel/tensor_parallel.h"
#include "tutti/train/config/faults.h"
#include "tutti/train/step/expert_exchange.h"
#include "tutti/train/step/run_model.h"

namespace tutti::train {
namespace {

Tensor replicated(const Tensor& t, const dist::Mesh& mesh) {
  return dist::distribute_tensor(t, mesh, {}, {.src_data_rank = -1});
}
models::TokenBatch replicated(const models::TokenBatch& batch, const dist::Mesh& mesh) {
  return {replicated(batch.tokens, mesh), replicated(batch.positions, mesh), replicated(batch.first_key, mesh),
          batch.rows};
}

}  // namespace

TensorRanks divide_model(models::LanguageModel& model, const ParallelismConfig& config, comm::ProcessGroup* group) {
  const DataDegrees degrees = data_degrees(config, group == nullptr ? 1 : group->size());
  TensorRanks ranks;
  if (degrees.expert > 1 || (degrees.tensor > 1 && !nn::moe_layers(model).empty())) {
    const int64_t parts = degrees.expert_shard();
    const dist::Mesh all = dist::init_device_mesh("cpu", {degrees.expert_data() / parts, parts, degrees.expert},
                                                  {.names = {"dp_replicate", "efsdp", "ep"}});
    const dist::Mesh data = all->slice({"dp_replicate", "efsdp"});
    ranks.experts = all->slice({"ep"});
    ranks.expert_replicas = data->flatten("edp")->group();
    if (parts > 1) ranks.expert_storage = data->size(0) > 1 ? data : all->slice({"efsdp"});
    parallel::expert_parallel(model, ranks.experts, {.exchange = expert_exchange(config)});
  }
  if (degrees.tensor > 1) {
    const dist::Mesh all = dist::init_device_mesh("cpu", {degrees.replicate, degrees.shard, degrees.tensor},
                                                  {.names = {"dp_replicate", "dp_shard", "tp"}});
    const dist::Mesh data = all->slice({"dp_replicate", "dp_shard"});
    ranks.mesh = all->slice({"tp"});
    ranks.data = data->flatten("dp")->group();
    ranks.storage = degrees.replicate > 1 ? data : all->slice({"dp_shard"});
    parallel::parallelize_module(model, ranks.mesh, model.tensor_parallel_plan(config.enable_sequence_parallel));
  }
  return ranks;
}

// Each of these leads the ranks that it needs: those that divide the model or those that divide its experts, of which
// one has the other.
comm::ProcessGroup* TensorRanks::evaluators(comm::ProcessGroup* group) const {
  comm::ProcessGroup* fewest = group;
  if (mesh != nullptr) fewest = data.get();
  if (experts != nullptr && expert_replicas->size() < fewest->size()) fewest = expert_replicas.get();
  return fewest;
}

void check_tensor_parallel(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  if (p.tensor_parallel_degree == 1) return;
  if (config.numerics.mode != "strict") return;
  const int64_t tokens = config.training.global_batch_tokens / config.numerics.virtual_shards;
  const std::unique_ptr<models::LanguageModel> model = build_model(config);
  const bool cuts_tokens = p.enable_sequence_parallel || !nn::moe_layers(*model).empty();
  try {
    model->check_tensor_parallel(p.tensor_parallel_degree, cuts_tokens ? tokens : 0, config.numerics.token_grain);
  } catch (const UsageError& error) {
    throw UsageError(
        fmt::format("parallelism.tensor_parallel_degree = {}: {}", p.tensor_parallel_degree, error.what()));
  }
}

void check_expert_parallel(const Config& config) {
  const ParallelismConfig& p = config.parallelism;
  const int64_t degree = p.expert_parallel_degree, shards = config.numerics.virtual_shards,
                tensor = p.tensor_parallel_degree;
  if (degree == 1 && tensor == 1) return;
  const std::unique_ptr<models::LanguageModel> model = build_model(config);
  const std::vector<nn::NamedMoE> layers = nn::moe_layers(*model);
  if (degree == 1 && layers.empty()) return;
  const std::string key = degree > 1 ? fmt::format("parallelism.expert_parallel_degree = {}", degree)
                                     : fmt::format("parallelism.tensor_parallel_degree = {} with experts", tensor);
  TUTTI_CHECK(!layers.empty(), "{}: the model {} has no experts", key, model->config().name());
  Faults faults;
  const auto check = [&](bool is_so, const std::string& why) { faults.check(is_so, "{}: {}", key, why); };
  if (degree > 1) faults.collect([&] { check_expert_exchange(config); });
  const bool is_power = std::has_single_bit(static_cast<uint64_t>(degree)) && degree <= shards * tensor;
  check(is_power,
        fmt::format("expected a power of two up to the {} virtual shards{}, whose tree the gradients of experts follow",
                    shards, tensor == 1 ? "" : fmt::format(" of {} tensor-parallel ranks", tensor)));
  check(p.data_parallel_schedule != "once_a_step",
        "ranks that divide experts or their tokens run neighbouring shards at once; set "
        "parallelism.data_parallel_schedule = every_round or auto, with the same numbers");
  check(p.data_parallel_overlap == "none",
        fmt::format("ranks that divide experts or their tokens exchange gradients after each round, and "
                    "parallelism.data_parallel_overlap = {} needs once_a_step; set it to none, with the same numbers",
                    p.data_parallel_overlap));
  for (const nn::NamedMoE& layer : layers) {
    const int64_t experts = layer.layer->options().router.num_experts;
    if (!is_power || experts % degree == 0) continue;
    check(false, fmt::format("'{}' has {} experts, which it does not divide", layer.name, experts));
    break;
  }
  faults.raise();
}

Tensor losses_of(const models::LanguageModel& model, const models::TokenBatch& batch, const Tensor& labels,
                 const models::ForwardOptions& options, const dist::Mesh& mesh) {
  if (mesh == nullptr) return model.losses(batch, labels, options);
  return dist::full_tensor(model.losses(replicated(batch, mesh), replicated(labels, mesh), options));
}

}  // namespace tutti::train
