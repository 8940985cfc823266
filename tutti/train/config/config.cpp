#include "tutti/train/config/config.h"

#include <algorithm>

#include "tutti/train/config/data_degrees.h"
#include "tutti/train/config/faults.h"
#include "tutti/train/survival/survival_rules.h"

namespace tutti::train {

Faults faults_of(const Config& config) {
  Faults faults;
  const int64_t batch = config.training.global_batch_tokens;
  const int64_t length = config.data.sequence_length;
  faults.check(batch % length == 0,
               "training.global_batch_tokens = {} is no multiple of data.sequence_length = {}; try {}", batch, length,
               (batch + length - 1) / length * length);
  const int64_t sequences = batch / length;
  faults.check(sequences % config.numerics.virtual_shards == 0,
               "training.global_batch_tokens / data.sequence_length = {} sequences cannot be divided evenly over "
               "numerics.virtual_shards = {}; try training.global_batch_tokens = {}",
               sequences, config.numerics.virtual_shards,
               (sequences / config.numerics.virtual_shards + 1) * config.numerics.virtual_shards * length);
  faults.check(config.parallelism.data_parallel_replicate_degree <= config.numerics.virtual_shards,
               "parallelism.data_parallel_replicate_degree = {} is more than numerics.virtual_shards = {}; every rank "
               "needs at least one shard of the batch",
               config.parallelism.data_parallel_replicate_degree, config.numerics.virtual_shards);
  const int64_t replicas = std::max<int64_t>(config.parallelism.data_parallel_replicate_degree, 1),
                parts = std::max<int64_t>(config.parallelism.data_parallel_shard_degree, 1);
  faults.check(replicas > config.numerics.virtual_shards || replicas * parts <= config.numerics.virtual_shards,
               "parallelism.data_parallel_replicate_degree x data_parallel_shard_degree = {} x {} is more than "
               "numerics.virtual_shards = {}; every rank needs at least one shard of the "
               "batch",
               replicas, parts, config.numerics.virtual_shards);
  faults.check(
      config.parallelism.data_parallel_overlap == "none" || config.parallelism.data_parallel_schedule != "every_round",
      "parallelism.data_parallel_overlap is 'backward' and data_parallel_schedule is 'every_round'; gradients move "
      "under backward with "
      "once_a_step only");
  faults.check(config.lr_scheduler.warmup_steps <= config.training.steps,
               "lr_scheduler.warmup_steps = {} is more than training.steps = {}; lower the one or raise the other",
               config.lr_scheduler.warmup_steps, config.training.steps);
  faults.check(
      config.activation_checkpoint.mode != "memory_budget" || config.training.compile,
      "activation_checkpoint.mode is 'memory_budget' and training.compile is false; the budget is the compiler's: set "
      "training.compile = true, or mode = 'full'");
  faults.check(!config.parallelism.enable_async_tensor_parallel || config.training.compile,
               "parallelism.enable_async_tensor_parallel is true and training.compile is false; the compiler joins "
               "collectives and products: set training.compile = true");
  faults.check(!config.data.paths.empty(), "data.paths is empty; name at least one file or folder of text");
  faults.check(config.validation.every == 0 || config.data.validation_fraction > 0,
               "validation.every = {} needs held-out text, but data.validation_fraction is 0; set one of them",
               config.validation.every);
  faults.collect([&] { check_survival(config); });
  faults.collect([&] { check_tensor_parallel(config); });
  faults.collect([&] { check_expert_parallel(config); });
  return faults;
}

void validate(const Config& config) { faults_of(config).raise(); }

}  // namespace tutti::train
