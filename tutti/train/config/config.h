// The configuration of a training run: one struct per section of the TOML file, with the defaults.
//
// The table in config_fields.cpp defines meaning, unit and legal values of every key; parsing, writing, help and
// docs/config.md are generated from it. -1 means "the rest" or "as many as fit" where a key allows it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::train {

class Faults;

struct ModelConfig {
  std::string name = "qwen3";
  std::string flavor = "quickstart";
  double dropout = 0.0;
  double load_balance_coeff = 1e-3;
};

struct DataConfig {
  std::vector<std::string> paths;
  std::string text_field = "text";
  std::string binary = "refuse";
  double validation_fraction = 0.01;
  std::string tokenizer = "byte";
  std::string changed = "refuse";
  int64_t sequence_length = 256;
};

struct TrainingConfig {
  int64_t steps = 1000;
  int64_t global_batch_tokens = 8192;
  bool compile = false;
  int64_t loss_max_bytes = 0;
  double max_norm = 1.0;
  std::string dtype = "float32";
  std::string mixed_precision_param = "float32";
  std::string mixed_precision_reduce = "float32";
  int64_t seed = 42;
  bool survive_rank_loss = false;
};

struct NumericsConfig {
  std::string mode = "strict";
  std::string changed = "refuse";
  int64_t virtual_shards = 8;
  int64_t token_grain = 128;
};

struct RuntimeConfig {
  int64_t threads = -1;
  bool progress_thread = false;
  std::string transport = "auto";
};

struct ParallelismConfig {
  int64_t data_parallel_replicate_degree = -1;
  std::string data_parallel_schedule = "auto";
  std::string data_parallel_overlap = "none";
  int64_t data_parallel_shard_degree = 1;
  int64_t tensor_parallel_degree = 1;
  int64_t context_parallel_degree = 1;
  int64_t pipeline_parallel_degree = 1;
  int64_t expert_parallel_degree = 1;
  std::string expert_parallel_comm_backend = "standard";
  bool enable_sequence_parallel = true;
  bool enable_async_tensor_parallel = false;
  std::string fsdp_reshard_after_forward = "default";
  std::string outer_dp_sharding_strategy = "no_shard";
  int64_t reduce_scatter_max_input_buffers = 2;
};

struct OptimizerConfig {
  std::string name = "adamw";
  double lr = 8e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  double momentum = 0.0;
};

struct LrSchedulerConfig {
  int64_t warmup_steps = -1;
  double decay_ratio = -1;
  std::string decay_type = "linear";
  double min_lr_factor = 0.0;
};

struct ActivationCheckpointConfig {
  std::string mode = "none";
  double memory_budget = 0.5;
};

struct ValidationConfig {
  int64_t every = 100;
  int64_t steps = -1;
  int64_t sample_tokens = 200;
  std::string sample_prompt = "The ";
};

struct CheckpointConfig {
  int64_t every = 500;
  int64_t keep_latest = 3;
  bool async = false;
  std::string initial_load_path;
};

struct MetricsConfig {
  bool tensorboard = true;
  bool report = true;
  double peak_gflops = 0;
};

struct ProfilerConfig {
  bool enable = false;
  int64_t first_step = 3;
  int64_t steps = 1;
  bool memory = true;
  int64_t events_per_thread = 1 << 20;
};

struct RunConfig {
  std::string name;
  std::string dir = "runs";
};

struct Config {
  ModelConfig model;
  DataConfig data;
  TrainingConfig training;
  NumericsConfig numerics;
  RuntimeConfig runtime;
  ParallelismConfig parallelism;
  OptimizerConfig optimizer;
  LrSchedulerConfig lr_scheduler;
  ActivationCheckpointConfig activation_checkpoint;
  ValidationConfig validation;
  CheckpointConfig checkpoint;
  MetricsConfig metrics;
  ProfilerConfig profiler;
  RunConfig run;
};

// The rules between keys that the configuration breaks, naming the keys and how to fix them; each key by itself is
// checked when it is set.
Faults faults_of(const Config& config);
// UsageError with all of them, if there are some.
void validate(const Config& config);

}  // namespace tutti::train
