#include "tutti/train/config/torchtitan_keys.h"

#include <fmt/format.h>

namespace tutti::train {
namespace {

struct Translation {
  std::string_view section, key;  // no key: all of the section
  std::string_view here;
};

// Keys that TorchTitan has, or had, under other names than Tutti. Those of the same name need no row.
constexpr Translation kTranslations[] = {
    {"training", "local_batch_size",
     "set training.global_batch_tokens = rows x data.sequence_length, the batch of all ranks"},
    {"training", "global_batch_size", "set training.global_batch_tokens = rows x data.sequence_length"},
    {"training", "batch_size",
     "set training.global_batch_tokens = rows x data.sequence_length, the batch of all ranks"},
    {"training", "seq_len", "set data.sequence_length"},
    {"training", "max_context_length", "set data.sequence_length"},
    {"training", "num_tokens_per_train_step", "set training.global_batch_tokens"},
    {"training", "num_tokens_per_microbatch_per_dp_rank",
     "set numerics.virtual_shards: the batch is computed in so many parts, whatever the ranks"},
    {"training", "dataset", "set data.paths"},
    {"training", "dataset_path", "set data.paths"},
    {"training", "deterministic", "leave it out: numerics.mode = \"strict\" is the default, across layouts"},
    {"training", "data_parallel_shard_degree", "set parallelism.data_parallel_shard_degree"},
    {"training", "data_parallel_replicate_degree", "set parallelism.data_parallel_replicate_degree"},
    {"training", "tensor_parallel_degree", "set parallelism.tensor_parallel_degree"},
    {"training", "enable_cpu_offload", "leave it out: parameters are in host memory"},
    {"training", "gc_freq", "leave it out: there is no garbage collector"},
    {"training", "warmup_steps", "set lr_scheduler.warmup_steps"},
    {"model", "tokenizer_path", "set data.tokenizer"},
    {"model", "hf_assets_path", "set data.tokenizer, and checkpoint.initial_load_path for weights"},
    {"optimizer", "implementation", "leave it out: one kernel steps all parameters with training.compile"},
    {"optimizer", "early_step_in_backward", "leave it out: the clip norm needs all gradients first"},
    {"lr_scheduler", "lr_min", "set lr_scheduler.min_lr_factor"},
    {"activation_checkpoint", "selective_ac_option",
     "set activation_checkpoint.mode = \"memory_budget\" and memory_budget"},
    {"activation_checkpoint", "early_stop", "leave it out"},
    {"validation", "enable", "set validation.every = 0 for no validation"},
    {"validation", "enabled", "set validation.every = 0 for no validation"},
    {"validation", "freq", "set validation.every"},
    {"checkpoint", "enable", "leave it out: a run always saves at its end"},
    {"checkpoint", "enable_checkpoint", "leave it out: a run always saves at its end"},
    {"checkpoint", "interval", "set checkpoint.every"},
    {"checkpoint", "keep_latest_k", "set checkpoint.keep_latest"},
    {"checkpoint", "folder", "set run.dir and run.name; checkpoints are in the folder of the run"},
    {"checkpoint", "async_mode", "set checkpoint.async"},
    {"checkpoint", "export_dtype", "leave it out: masters are saved in f32"},
    {"metrics", "log_freq", "leave it out: every step is in metrics.jsonl"},
    {"metrics", "enable_tensorboard", "set metrics.tensorboard"},
    {"metrics", "enable_wandb", "set metrics.tensorboard; metrics.jsonl holds every step for other programs"},
    {"parallelism", "data_parallel_type", "set parallelism.data_parallel_shard_degree"},
    {"parallelism", "pipeline_parallel_schedule", "leave it out: pipelines are not in this version"},
    {"parallelism", "enable_async_tensor_parallel",
     "leave it out: the reductions of tensor parallelism are not asynchronous in this version"},
    {"parallelism", "fsdp_reshard_after_forward_policy", "set parallelism.fsdp_reshard_after_forward"},
    {"job", "", "set run.dir and run.name"},
    {"experimental", "", "leave it out"},
    {"debug", "", "set training.seed, and numerics.mode for determinism"},
    {"compile", "", "set training.compile"},
    {"validator", "", "set validation.every and validation.steps"},
    {"profiling", "", "set profiler.enable"},
    {"comm", "", "set runtime.transport"},
    {"float8", "", "leave it out: there is no float8 training in this version"},
    {"memory_estimation", "", "leave it out: a run that cannot fit is refused before it starts"},
};

}  // namespace

std::string torchtitan_hint(std::string_view section, std::string_view key) {
  for (const Translation& t : kTranslations) {
    if (t.section != section || (!t.key.empty() && t.key != key)) continue;
    const std::string name = t.key.empty() ? fmt::format("section [{}]", section) : fmt::format("{}.{}", section, key);
    return fmt::format("{} is TorchTitan's; {}", name, t.here);
  }
  return "";
}

}  // namespace tutti::train
