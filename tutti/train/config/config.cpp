#include "tutti/train/config/config.h"

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/train/config/data_degrees.h"
#include "tutti/train/survival/survival_rules.h"

namespace tutti::train {

void validate(const Config& config) {
  const int64_t batch = config.training.global_batch_tokens;
  const int64_t length = config.data.sequence_length;
  TUTTI_CHECK(batch % length == 0,
              "training.global_batch_tokens = {} is no multiple of data.sequence_length = {}; try {}", batch, length,
              (batch + length - 1) / length * length);
  const int64_t sequences = batch / length;
  TUTTI_CHECK(sequences % config.numerics.virtual_shards == 0,
              "training.global_batch_tokens / data.sequence_length = {} sequences cannot be divided evenly over "
              "numerics.virtual_shards = {}; try training.global_batch_tokens = {}",
              sequences, config.numerics.virtual_shards,
              (sequences / config.numerics.virtual_shards + 1) * config.numerics.virtual_shards * length);
  TUTTI_CHECK(config.parallelism.data_parallel_replicate_degree <= config.numerics.virtual_shards,
              "parallelism.data_parallel_replicate_degree = {} is more than numerics.virtual_shards = {}; every rank "
              "needs at least one shard of the batch",
              config.parallelism.data_parallel_replicate_degree, config.numerics.virtual_shards);
  const int64_t replicas = std::max<int64_t>(config.parallelism.data_parallel_replicate_degree, 1),
                parts = std::max<int64_t>(config.parallelism.data_parallel_shard_degree, 1);
  TUTTI_CHECK(replicas * parts <= config.numerics.virtual_shards,
              "parallelism.data_parallel_replicate_degree x data_parallel_shard_degree = {} x {} is more than "
              "numerics.virtual_shards = {}; every rank needs at least one shard of the "
              "batch",
              replicas, parts, config.numerics.virtual_shards);
  TUTTI_CHECK(
      config.parallelism.data_parallel_overlap == "none" || config.parallelism.data_parallel_schedule != "every_round",
      "parallelism.data_parallel_overlap is 'backward' and data_parallel_schedule is 'every_round'; gradients move "
      "under backward with "
      "once_a_step only");
  TUTTI_CHECK(config.lr_scheduler.warmup_steps <= config.training.steps,
              "lr_scheduler.warmup_steps = {} is more than training.steps = {}; lower the one or raise the other",
              config.lr_scheduler.warmup_steps, config.training.steps);
  TUTTI_CHECK(
      config.activation_checkpoint.mode != "memory_budget" || config.training.compile,
      "activation_checkpoint.mode is 'memory_budget' and training.compile is false; the budget is the compiler's: set "
      "training.compile = true, or mode = 'full'");
  TUTTI_CHECK(!config.parallelism.enable_async_tensor_parallel || config.training.compile,
              "parallelism.enable_async_tensor_parallel is true and training.compile is false; the compiler joins "
              "collectives and products: set training.compile = true");
  TUTTI_CHECK(!config.data.paths.empty(), "data.paths is empty; name at least one file or folder of text");
  TUTTI_CHECK(config.validation.every == 0 || config.data.validation_fraction > 0,
              "validation.every = {} needs held-out text, but data.validation_fraction is 0; set one of them",
              config.validation.every);
  check_survival(config);
  check_tensor_parallel(config);
  check_expert_parallel(config);
}

}  // namespace tutti::train
