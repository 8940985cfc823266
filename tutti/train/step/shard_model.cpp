#include "tutti/train/step/shard_model.h"

#include <utility>
#include <vector>

#include "tutti/nn/moe.h"
#include "tutti/parallel/parameter_copies.h"
#include "tutti/train/step/plan_layouts.h"

namespace tutti::train {

std::vector<nn::NamedModule> repeated_blocks(nn::Module& model) {
  std::vector<nn::NamedModule> blocks;
  std::string inside;
  for (const nn::NamedModule& m : model.named_modules()) {
    if (!inside.empty() && m.name.starts_with(inside)) continue;
    const std::string name = m.module->call_name();
    const size_t dot = name.rfind('.');
    const bool is_item = dot != std::string::npos && name.find_first_not_of("0123456789", dot + 1) == std::string::npos;
    if (!is_item) continue;
    blocks.push_back(m);
    inside = m.name + ".";
  }
  return blocks;
}

std::optional<parallel::ShardedModule> shard_model(models::LanguageModel& model, const ParallelismConfig& config,
                                                   comm::ProcessGroup* group, const TensorRanks& divided,
                                                   std::function<Tensor(const nn::NamedParameter&)> memory) {
  const DataDegrees degrees = data_degrees(config, group == nullptr ? 1 : group->size());
  if (degrees.shard == 1) return std::nullopt;
  parallel::FullyShardOptions options;
  options.mesh =
      divided.storage != nullptr ? divided.storage
      : degrees.replicate == 1
          ? dist::mesh_from_group(group->shared_from_this(), "cpu", {.names = {"dp_shard"}})
          : dist::init_device_mesh("cpu", {degrees.replicate, degrees.shard}, {.names = {"dp_replicate", "dp_shard"}});
  options.memory = std::move(memory);
  const bool is_shared = parallel::shares_memory(*options.mesh->group(options.mesh->ndim() - 1));
  const bool is_always = config.fsdp_reshard_after_forward == "always",
             is_never = config.fsdp_reshard_after_forward == "never";
  options.reshard_after_forward = reshard_degree(config, degrees.shard, is_shared);
  options.outer_dp_sharding_strategy = parallel::parse_outer_dp_sharding(config.outer_dp_sharding_strategy);
  const bool experts_give_back = !is_never;  // they lie on fewer ranks
  for (const nn::NamedMoE& moe : divided.experts != nullptr ? nn::moe_layers(model) : std::vector<nn::NamedMoE>()) {
    if (divided.expert_storage != nullptr) {
      parallel::fully_shard(*moe.layer->experts, {.mesh = divided.expert_storage,
                                                  .reshard_after_forward = experts_give_back,
                                                  .outer_dp_sharding_strategy = options.outer_dp_sharding_strategy});
      continue;
    }
    for (const nn::NamedParameter& p : moe.layer->experts->named_parameters())
      options.ignored_params.push_back(p.parameter);
  }
  for (const nn::NamedModule& block : repeated_blocks(model)) parallel::fully_shard(*block.module, options);
  if (!is_always && !is_never) options.reshard_after_forward.reset();
  return parallel::fully_shard(model, options);
}

std::string describe_mesh(const models::LanguageModel& model, const parallel::ShardedModule* sharded,
                          const Config& config, int64_t ranks) {
  const bool is_shared = !sharded || sharded->is_shared();
  const StepPlan plan = StepPlanner(config).plan(ranks, is_shared);
  const auto mib = [](auto bytes) { return static_cast<double>(bytes) / (1 << 20); };
  int64_t stored = 0;
  for (const nn::NamedParameter& p : model.named_parameters()) stored += p.parameter.stored().nbytes();
  std::string text =
      fmt::format("mesh {}: rank 0 stores {:.1f} of {:.1f} MiB of the parameters, a rank sends up to {:.1f} MiB a step",
                  mesh_name(plan.degrees), mib(stored), mib(model.parameter_count() * itemsize(DType::f32)),
                  mib(plan.sent_bytes()));
  if (sharded)
    text += fmt::format("; {} {:.1f} MiB", is_shared ? "the ranks read one copy of" : "each rank gathers a copy of",
                        mib(sharded->all_copy_bytes()));
  return text;
}

}  // namespace tutti::train
