#include "tutti/train/config_fields.h"

#include "tutti/train/lr_schedule.h"

namespace tutti::train {
namespace {

// section, key and where it stands, from one mention.
#define TUTTI_KEY(section_, key_) \
  .section = #section_, .key = #key_, .place = +[](Config& config) { return &config.section_.key_; }

constexpr Resuming kFixed = Resuming::fixed;
constexpr Resuming kTold = Resuming::told;

FieldRule at_least(double min) {
  return {.min = min};
}
FieldRule at_least_or_rest(double min) {
  return {.min = min, .also = -1};
}
FieldRule above(double min) {
  return {.min = min, .min_excluded = true};
}
FieldRule between(double min, double max) {
  return {.min = min, .max = max};
}
FieldRule one_of(std::vector<std::string> choices) {
  return {.choices = std::move(choices)};
}
FieldRule only(FieldValue value) {
  return {.only = std::move(value)};
}
// A degree of a kind of parallelism that is 1 here; -1 comes to the same.
FieldRule degree_one() {
  return {.also = -1, .only = int64_t{1}};
}

std::vector<std::string> decay_choices() {
  return {lr_decay_names().begin(), lr_decay_names().end()};
}

std::vector<Field> make_fields() {
  return {
      {TUTTI_KEY(model, name), .doc = "model family", .unit = "", .rule = one_of({"qwen3"}), .resuming = kFixed},
      {TUTTI_KEY(model, flavor), .doc = "size of the model, by name", .unit = "", .resuming = kFixed},

      {TUTTI_KEY(data, paths),
       .doc = "files, folders and globs of text; .jsonl, gzip and dictzip are recognised. They may move while a run continues, "
              "their text may not change",
       .unit = ""},
      {TUTTI_KEY(data, validation_fraction), .doc = "share of the text that is held out for validation", .unit = "",
       .rule = between(0, 0.5), .resuming = kFixed},
      {TUTTI_KEY(data, tokenizer),
       .doc = "'byte', 'bpe:N' (N tokens learned from data.paths), or the path of a tokenizer.json. A run that continues uses its "
              "own, so this must come to the same",
       .unit = ""},
      {TUTTI_KEY(data, changed),
       .doc = "when a run continues and its text or the file of its tokenizer changed: refuse, or continue with the new text and the "
              "run's own tokenizer",
       .unit = "", .rule = one_of({"refuse", "continue"})},
      {TUTTI_KEY(data, sequence_length), .doc = "length of a training sequence", .unit = "tokens",
       .rule = between(2, 1 << 20), .resuming = kFixed},

      {TUTTI_KEY(training, steps), .doc = "optimizer steps of the whole run", .unit = "steps", .rule = at_least(1), .resuming = kTold},
      {TUTTI_KEY(training, global_batch_tokens), .doc = "tokens of one optimizer step, over all ranks",
       .unit = "tokens", .rule = between(1, 1 << 30), .resuming = kFixed},
      {TUTTI_KEY(training, compile), .doc = "compile forward and backward: captured once, then run as few fused kernels; same bits", .unit = ""},
      {TUTTI_KEY(training, loss_max_bytes),
       .doc = "projection and loss are computed from chunks of the logits that take so much memory; 0: from whole logits; same bits", .unit = "bytes",
       .rule = at_least(0)},
      {TUTTI_KEY(training, max_norm), .doc = "gradients are scaled down to this global norm; 0 leaves them", .unit = "",
       .rule = at_least(0), .resuming = kFixed},
      {TUTTI_KEY(training, dtype), .doc = "type of the master weights", .unit = "", .rule = one_of({"float32"}),
       .resuming = kFixed},
      {TUTTI_KEY(training, mixed_precision_param), .doc = "type in which forward and backward compute", .unit = "",
       .rule = one_of({"float32", "bfloat16"}), .resuming = kFixed},
      {TUTTI_KEY(training, mixed_precision_reduce), .doc = "type in which gradients are summed", .unit = "",
       .rule = one_of({"float32"}), .resuming = kFixed},
      {TUTTI_KEY(training, seed), .doc = "seed of weights, shuffling and dropout", .unit = "", .rule = at_least(0),
       .resuming = kFixed},

      {TUTTI_KEY(numerics, mode), .doc = "strict: same bits on any layout; fast: matrix products may be a library's", .unit = "",
       .rule = one_of({"strict", "fast"}), .resuming = kFixed},
      {TUTTI_KEY(numerics, changed),
       .doc = "when a run continues that a program of another numerics.version computed: refuse, or continue with other bits", .unit = "",
       .rule = one_of({"refuse", "continue"})},
      {TUTTI_KEY(numerics, virtual_shards),
       .doc = "parts the global batch is computed in; at least the number of ranks", .unit = "shards",
       .rule = {.min = 1, .max = 4096, .power_of_two = true}, .resuming = kFixed},
      {TUTTI_KEY(numerics, token_grain), .doc = "positions summed as one leaf in every reduction over tokens",
       .unit = "tokens", .rule = between(1, 1 << 20), .resuming = kFixed},

      {TUTTI_KEY(runtime, threads), .doc = "threads of one rank; -1: cores divided by local ranks", .unit = "threads",
       .rule = {.min = 1, .max = 1024, .also = -1}},
      {TUTTI_KEY(runtime, transport), .doc = "how ranks exchange data; auto: shared memory inside a host, TCP between hosts; threads: the ranks of -n are threads of one process", .unit = "",
       .rule = one_of({"auto", "shm", "gloo", "mpi", "hier", "threads"})},
      {TUTTI_KEY(runtime, symm_backend), .doc = "who makes symmetric memory; training does not use any yet", .unit = "", .rule = only("native")},

      {TUTTI_KEY(parallelism, data_parallel_replicate_degree),
       .doc = "ranks that hold the whole model and share the batch; -1: all ranks", .unit = "ranks",
       .rule = {.min = 1, .also = -1}},
      {TUTTI_KEY(parallelism, data_parallel_shard_degree), .doc = "ranks that share parameters and optimizer state",
       .unit = "ranks", .rule = degree_one()},
      {TUTTI_KEY(parallelism, tensor_parallel_degree), .doc = "ranks that share each matrix product", .unit = "ranks",
       .rule = degree_one()},
      {TUTTI_KEY(parallelism, context_parallel_degree), .doc = "ranks that share each sequence", .unit = "ranks",
       .rule = degree_one()},
      {TUTTI_KEY(parallelism, pipeline_parallel_degree), .doc = "ranks that share the layers", .unit = "ranks",
       .rule = degree_one()},
      {TUTTI_KEY(parallelism, expert_parallel_degree), .doc = "ranks that share the experts", .unit = "ranks",
       .rule = degree_one()},
      {TUTTI_KEY(parallelism, enable_sequence_parallel),
       .doc = "with tensor parallelism, norms are shared along the sequence", .unit = ""},
      {TUTTI_KEY(parallelism, fsdp_reshard_after_forward),
       .doc = "with sharded parameters, free them between forward and backward", .unit = "",
       .rule = one_of({"default", "always", "never"})},

      {TUTTI_KEY(optimizer, name), .doc = "update rule", .unit = "", .rule = one_of({"adamw", "sgd"}),
       .resuming = kFixed},
      {TUTTI_KEY(optimizer, lr), .doc = "base learning rate", .unit = "", .rule = at_least(0), .resuming = kTold},
      {TUTTI_KEY(optimizer, beta1), .doc = "AdamW: decay of the first moment", .unit = "", .rule = between(0, 1), .resuming = kTold},
      {TUTTI_KEY(optimizer, beta2), .doc = "AdamW: decay of the second moment", .unit = "", .rule = between(0, 1), .resuming = kTold},
      {TUTTI_KEY(optimizer, eps), .doc = "AdamW: added to the root of the second moment", .unit = "", .rule = above(0), .resuming = kTold},
      {TUTTI_KEY(optimizer, weight_decay), .doc = "weight decay; decoupled for adamw, added to the gradient for sgd", .unit = "", .rule = at_least(0), .resuming = kTold},
      {TUTTI_KEY(optimizer, momentum), .doc = "SGD: momentum", .unit = "", .rule = between(0, 1), .resuming = kTold},

      {TUTTI_KEY(lr_scheduler, warmup_steps), .doc = "steps over which the rate rises to its base value",
       .unit = "steps", .rule = at_least(0), .resuming = kTold},
      {TUTTI_KEY(lr_scheduler, decay_ratio),
       .doc = "share of the run over which the rate falls; -1: all steps after the warm-up", .unit = "",
       .rule = {.min = 0, .max = 1, .also = -1}, .resuming = kTold},
      {TUTTI_KEY(lr_scheduler, decay_type), .doc = "how the rate falls", .unit = "", .rule = one_of(decay_choices()), .resuming = kTold},
      {TUTTI_KEY(lr_scheduler, min_lr_factor), .doc = "share of the base rate the decay tends to", .unit = "",
       .rule = between(0, 1), .resuming = kTold},

      {TUTTI_KEY(activation_checkpoint, mode),
       .doc = "full: keep only the inputs of each block and compute the block again in backward; memory_budget: compute again what "
              "memory_budget asks for, needs training.compile", .unit = "",
       .rule = one_of({"none", "full", "memory_budget"})},
      {TUTTI_KEY(activation_checkpoint, memory_budget),
       .doc = "of the memory between the least and what costs no time: 0 computes most again, 1 nothing dear", .unit = "",
       .rule = between(0, 1)},

      {TUTTI_KEY(validation, every), .doc = "validate after this many steps; 0: never", .unit = "steps",
       .rule = at_least(0), .resuming = kTold},
      {TUTTI_KEY(validation, steps), .doc = "batches of a validation; -1: the whole held-out text", .unit = "batches",
       .rule = at_least_or_rest(1), .resuming = kTold},
      {TUTTI_KEY(validation, sample_tokens), .doc = "length of the text the model writes at the end; 0: none",
       .unit = "tokens", .rule = between(0, 1 << 20)},
      {TUTTI_KEY(validation, sample_prompt), .doc = "how that text begins", .unit = ""},

      {TUTTI_KEY(checkpoint, every), .doc = "save after this many steps; 0: only at the end", .unit = "steps",
       .rule = at_least(0)},
      {TUTTI_KEY(checkpoint, keep_latest), .doc = "older checkpoints are deleted; -1: keep all", .unit = "checkpoints",
       .rule = at_least_or_rest(1)},
      {TUTTI_KEY(checkpoint, async), .doc = "write while training goes on", .unit = "", .rule = only(false)},
      {TUTTI_KEY(checkpoint, initial_load_path),
       .doc = "weights to start from: a checkpoint folder or a .safetensors file", .unit = "", .resuming = kTold},

      {TUTTI_KEY(metrics, tensorboard), .doc = "write a TensorBoard event file", .unit = ""},
      {TUTTI_KEY(metrics, report), .doc = "write report.html", .unit = ""},
      {TUTTI_KEY(metrics, peak_gflops), .doc = "peak of this machine, against which mfu is counted; 0: unknown",
       .unit = "GFLOP/s", .rule = at_least(0)},

      {TUTTI_KEY(profiler, enable), .doc = "write a trace of some steps, one file per rank: trace/rank-R.json in the folder of the run",
       .unit = ""},
      {TUTTI_KEY(profiler, first_step), .doc = "first traced step, counted from where this start of the run begins", .unit = "steps",
       .rule = at_least(1)},
      {TUTTI_KEY(profiler, steps), .doc = "steps that are traced", .unit = "steps", .rule = at_least(1)},
      {TUTTI_KEY(profiler, memory), .doc = "trace every allocation, too", .unit = ""},
      {TUTTI_KEY(profiler, events_per_thread), .doc = "events kept per thread; more are counted as dropped", .unit = "events",
       .rule = between(1, 1 << 26)},

      {TUTTI_KEY(run, name), .doc = "folder of the run; empty: the name of the config file", .unit = ""},
      {TUTTI_KEY(run, dir), .doc = "folder of all runs", .unit = ""},
  };
}

#undef TUTTI_KEY

}  // namespace

std::span<const Section> config_sections() {
  static const std::vector<Section> sections{
      {"model", "Which model is trained."},
      {"data", "Which text it is trained on."},
      {"training", "How long, in which batches and types."},
      {"numerics", "What the results may depend on."},
      {"runtime", "What the program uses of the machine."},
      {"parallelism", "How work is divided over ranks."},
      {"optimizer", "The update rule."},
      {"lr_scheduler", "The learning rate over the run."},
      {"activation_checkpoint", "Memory against time."},
      {"validation", "Measuring on text the model has not seen."},
      {"checkpoint", "Saving and starting from saved weights."},
      {"metrics", "What is recorded."},
      {"profiler", "Where the time goes."},
      {"run", "Where results are put."},
  };
  return sections;
}

std::span<const Field> config_fields() {
  static const std::vector<Field> fields = make_fields();
  return fields;
}

}  // namespace tutti::train
