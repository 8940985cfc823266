#include "tutti/train/shard_model.h"

#include <algorithm>
#include <vector>

#include "tutti/parallel/gradient_exchange.h"

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

namespace {

// Bytes of gradients that a rank sends in a step, on average, when each parameter has one use.
double gradient_bytes(int64_t numel, int64_t shards, int64_t ranks, bool every_round) {
  double nodes = static_cast<double>(shards);
  if (!every_round) {
    nodes = 0;
    for (const auto& of_rank : parallel::consecutive_shards(shards, static_cast<int>(ranks))) nodes += static_cast<double>(of_rank.size());
  }
  return nodes / static_cast<double>(ranks) * 4 * static_cast<double>(numel) * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

std::string mib(double bytes) { return fmt::format("{:.1f}", bytes / (1 << 20)); }

}  // namespace

std::optional<parallel::ShardedModule> shard_model(models::LanguageModel& model, const ParallelismConfig& config, comm::ProcessGroup* group) {
  const DataDegrees degrees = data_degrees(config, group == nullptr ? 1 : group->size());
  if (degrees.shard == 1 || degrees.tensor > 1) return std::nullopt;
  parallel::FullyShardOptions options;
  options.mesh = degrees.replicate == 1 ? dist::mesh_from_group(group->shared_from_this(), "cpu", {.names = {"dp_shard"}})
                                        : dist::init_device_mesh("cpu", {degrees.replicate, degrees.shard}, {.names = {"dp_replicate", "dp_shard"}});
  if (config.fsdp_reshard_after_forward != "default") options.reshard_after_forward = config.fsdp_reshard_after_forward == "always";
  for (const nn::NamedModule& block : repeated_blocks(model)) parallel::fully_shard(*block.module, options);
  if (config.fsdp_reshard_after_forward == "default") options.reshard_after_forward.reset();
  return parallel::fully_shard(model, options);
}

std::string describe_mesh(const parallel::ShardedModule& sharded, const Config& config, int64_t ranks) {
  const DataDegrees degrees = data_degrees(config.parallelism, ranks);
  const int64_t stored = sharded.all_stored_bytes(), copies = sharded.all_copy_bytes();
  const auto numel = stored / 4 * degrees.shard;  // to within the unequal parts
  const double gathered = sharded.is_shared() ? 0 : static_cast<double>(copies) * static_cast<double>(degrees.shard - 1) / static_cast<double>(degrees.shard);
  const double sent = gradient_bytes(numel, config.numerics.virtual_shards, ranks, config.parallelism.data_parallel_schedule == "every_round") + gathered;
  return fmt::format("mesh {}dp_shard {}: rank 0 stores {} MiB of the parameters and sends at least {} MiB a step; {} {} MiB",
                     degrees.replicate > 1 ? fmt::format("dp_replicate {} x ", degrees.replicate) : "", degrees.shard, mib(static_cast<double>(stored)), mib(sent),
                     sharded.is_shared() ? "the ranks read one copy of" : "each rank gathers a copy of", mib(static_cast<double>(copies)));
}

}  // namespace tutti::train
