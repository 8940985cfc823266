#include "tutti/train/tensor_ranks.h"

#include "tutti/core/error.h"
#include "tutti/dist/dtensor.h"
#include "tutti/parallel/tensor_parallel.h"
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

Tensor losses_of(const models::LanguageModel& model, const models::TokenBatch& batch, const Tensor& labels, const models::ForwardOptions& options, const dist::Mesh& mesh) {
  if (mesh == nullptr) return model.losses(batch, labels, options);
  return dist::full_tensor(model.losses(replicated(batch, mesh), replicated(labels, mesh), options));
}

Tensor logits_of(const models::LanguageModel& model, const models::TokenBatch& batch, const models::ForwardOptions& options, const dist::Mesh& mesh) {
  if (mesh == nullptr) return model.forward(batch, options);
  return dist::full_tensor(model.forward(replicated(batch, mesh), options));
}

}  // namespace tutti::train
