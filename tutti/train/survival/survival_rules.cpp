#include "tutti/train/survival/survival_rules.h"

#include "tutti/train/config/faults.h"

namespace tutti::train {

ParallelismConfig layout_of_survivors(ParallelismConfig config, int64_t began, int64_t ranks) {
  if (ranks == began) return config;
  const bool is_divided = config.data_parallel_shard_degree != 1;
  config.data_parallel_replicate_degree = is_divided ? 1 : -1;
  config.data_parallel_shard_degree = is_divided ? -1 : 1;
  // So many neighbours need not divide the ranks that are left.
  const std::string& policy = config.fsdp_reshard_after_forward;
  if (policy != "always" && policy != "never") config.fsdp_reshard_after_forward = "default";
  return config;
}

void check_survival(const Config& config) {
  if (!config.training.survive_rank_loss) return;
  Faults faults;
  constexpr const char* kInstead =
      "set training.survive_rank_loss to false, and start with --max-restarts=N: then all ranks go on from the last "
      "checkpoint";
  faults.check(config.parallelism.tensor_parallel_degree == 1,
               "training.survive_rank_loss: with parallelism.tensor_parallel_degree = {} a rank has a part of each "
               "matrix product that no other has; a run outlives data ranks only. {}",
               config.parallelism.tensor_parallel_degree, kInstead);
  faults.check(config.parallelism.expert_parallel_degree == 1,
               "training.survive_rank_loss: with parallelism.expert_parallel_degree = {} a rank has experts that no "
               "other has; a run outlives "
               "data ranks only. {}",
               config.parallelism.expert_parallel_degree, kInstead);
  const std::string& transport = config.runtime.transport;
  faults.check(transport == "auto" || transport == "shm",
               "training.survive_rank_loss: with runtime.transport = '{}' the ranks do not share memory that outlives "
               "one of them; expected auto or shm. {}",
               transport, kInstead);
  faults.raise();
}

}  // namespace tutti::train
