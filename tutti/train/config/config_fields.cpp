#include "tutti/train/config/config_fields.h"

#include "tutti/models/language_model.h"
#include "tutti/train/step/lr_schedule.h"

namespace tutti::train {
namespace {

// section, key and where it stands, from one mention.
#define TUTTI_KEY(section_, key_) \
  .section = #section_, .key = #key_, .place = +[](Config& config) { return &config.section_.key_; }

constexpr Resuming kFixed = Resuming::fixed;
constexpr Resuming kTold = Resuming::told;

FieldRule at_least(double min) { return {.min = min}; }
FieldRule at_least_or_rest(double min) { return {.min = min, .also = -1}; }
FieldRule above(double min) { return {.min = min, .min_excluded = true}; }
FieldRule between(double min, double max) { return {.min = min, .max = max}; }
FieldRule one_of(std::vector<std::string> choices) { return {.choices = std::move(choices)}; }
// A degree of a kind of parallelism that is 1 here; -1 comes to the same.
FieldRule degree_one() { return {.also = -1, .only = int64_t{1}}; }

std::vector<std::string> family_choices() {
  std::vector<std::string> names;
  for (const models::ModelFamily& family : models::model_families()) names.push_back(family.name);
  return names;
}

std::vector<std::string> decay_choices() { return {lr_decay_names().begin(), lr_decay_names().end()}; }

std::vector<Field> make_fields() {
  return {
      {TUTTI_KEY(model, name), .doc = "model family", .unit = "", .rule = one_of(family_choices()), .resuming = kFixed},
      {TUTTI_KEY(model, flavor), .doc = "named size of the model, such as quickstart or 0.6B", .unit = "",
       .resuming = kFixed},
      {TUTTI_KEY(model, dropout),
       .doc = "probability with which training drops an element of what an attention or feed-forward layer adds. The "
              "masks depend "
              "on seed, step and virtual shard, not on the number of ranks",
       .unit = "", .rule = between(0, 1), .resuming = kFixed},
      {TUTTI_KEY(model, load_balance_coeff),
       .doc = "by how much a step moves the bias of an expert's router toward equal loads, in a model with experts; 0: "
              "not at all",
       .unit = "", .rule = at_least(0), .resuming = kFixed},

      {TUTTI_KEY(data, paths),
       .doc = "text files, folders and globs; .jsonl, gzip and dictzip are recognised. Between two starts of a run the "
              "files may move, but their text must not change",
       .unit = ""},
      {TUTTI_KEY(data, text_field), .doc = "the key under which the lines of .jsonl files have their text", .unit = ""},
      {TUTTI_KEY(data, binary),
       .doc = "what to do with files that hold no text, such as archives, tables and pictures: refuse them by name, or "
              "read their bytes as they are",
       .unit = "", .rule = one_of({"refuse", "read"})},
      {TUTTI_KEY(data, validation_fraction), .doc = "fraction of the documents that is held out for validation",
       .unit = "", .rule = between(0, 0.5), .resuming = kFixed},
      {TUTTI_KEY(data, tokenizer),
       .doc = "'byte', 'bpe:N' (N tokens learned from data.paths), or the path of a tokenizer.json. A resumed run uses "
              "its "
              "own tokenizer, so this must still describe the same one",
       .unit = ""},
      {TUTTI_KEY(data, changed),
       .doc =
           "what to do when the text or the tokenizer file of a resumed run has changed: refuse, or continue with the "
           "new text and the run's own tokenizer",
       .unit = "", .rule = one_of({"refuse", "continue"})},
      {TUTTI_KEY(data, sequence_length), .doc = "length of a training sequence", .unit = "tokens",
       .rule = between(2, 1 << 20), .resuming = kFixed},

      {TUTTI_KEY(training, steps), .doc = "total number of optimizer steps of the run", .unit = "steps",
       .rule = at_least(1), .resuming = kTold},
      {TUTTI_KEY(training, global_batch_tokens), .doc = "tokens per optimizer step, over all ranks", .unit = "tokens",
       .rule = between(1, 1 << 30), .resuming = kFixed},
      {TUTTI_KEY(training, compile),
       .doc = "compile forward and backward: they are captured once and then run as a few fused kernels; same bits",
       .unit = ""},
      {TUTTI_KEY(training, loss_max_bytes),
       .doc = "compute projection and loss from chunks of the logits that take at most this much memory; 0: from all "
              "logits at once; same bits",
       .unit = "bytes", .rule = at_least(0)},
      {TUTTI_KEY(training, max_norm), .doc = "clip gradients to this global norm; 0: no clipping", .unit = "",
       .rule = at_least(0), .resuming = kFixed},
      {TUTTI_KEY(training, dtype), .doc = "dtype of the master weights", .unit = "", .rule = one_of({"float32"}),
       .resuming = kFixed},
      {TUTTI_KEY(training, mixed_precision_param), .doc = "dtype in which forward and backward compute", .unit = "",
       .rule = one_of({"float32", "bfloat16"}), .resuming = kFixed},
      {TUTTI_KEY(training, mixed_precision_reduce), .doc = "dtype in which gradients are summed", .unit = "",
       .rule = one_of({"float32"}), .resuming = kFixed},
      {TUTTI_KEY(training, seed), .doc = "seed of weight initialization, shuffling and sampled text", .unit = "",
       .rule = at_least(0), .resuming = kFixed},
      {TUTTI_KEY(training, survive_rank_loss),
       .doc = "go on without a rank that is killed, from the step in which it was: masters, optimizer state and "
              "gradients lie in memory that the launcher holds. For data ranks "
              "of one host that share its memory. The numbers are the same",
       .unit = ""},

      {TUTTI_KEY(numerics, mode),
       .doc = "strict: same bits on any layout; fast: large matrix products may use a library with its own order of "
              "summation",
       .unit = "", .rule = one_of({"strict", "fast"}), .resuming = kFixed},
      {TUTTI_KEY(numerics, changed),
       .doc = "what to do when a resumed run was computed with another numerics.version: refuse, or continue with "
              "different bits",
       .unit = "", .rule = one_of({"refuse", "continue"})},
      {TUTTI_KEY(numerics, virtual_shards),
       .doc = "number of parts in which the global batch is computed; at least the number of ranks", .unit = "shards",
       .rule = {.min = 1, .max = 4096, .power_of_two = true}, .resuming = kFixed},
      {TUTTI_KEY(numerics, token_grain), .doc = "number of positions that form one leaf of every reduction over tokens",
       .unit = "tokens", .rule = between(1, 1 << 20), .resuming = kFixed},

      {TUTTI_KEY(runtime, threads), .doc = "threads per rank; -1: cores divided by local ranks", .unit = "threads",
       .rule = {.min = 1, .max = 1024, .also = -1}},
      {TUTTI_KEY(runtime, progress_thread),
       .doc = "whether a thread of its own moves what ranks send each other while they compute; it pays where a core "
              "is free. The numbers are the same",
       .unit = ""},
      {TUTTI_KEY(runtime, transport),
       .doc = "how ranks exchange data; auto: shared memory inside a host, TCP between hosts; threads: the ranks of -n "
              "are threads of one process",
       .unit = "", .rule = one_of({"auto", "shm", "gloo", "mpi", "hier", "threads"})},

      {TUTTI_KEY(parallelism, data_parallel_replicate_degree),
       .doc = "replicas of the parameters, each on one rank or divided over several, which share the batch; -1: the "
              "ranks that data_parallel_shard_degree leaves",
       .unit = "ranks", .rule = {.min = 1, .also = -1}},
      {TUTTI_KEY(parallelism, data_parallel_schedule),
       .doc = "when ranks exchange gradients; once_a_step: at its end, the fewest bytes; every_round: after each round "
              "of virtual shards; auto: every_round where ranks divide experts or the tokens that come to them, "
              "once_a_step elsewhere. The numbers are the same",
       .unit = "", .rule = one_of({"auto", "once_a_step", "every_round"})},
      {TUTTI_KEY(parallelism, data_parallel_overlap),
       .doc = "backward: with once_a_step and two virtual shards a rank or more, gradients begin to move under the "
              "backward of the last shard. The numbers are the same",
       .unit = "", .rule = one_of({"none", "backward"})},
      {TUTTI_KEY(parallelism, data_parallel_shard_degree),
       .doc = "ranks over which parameters, gradients and optimizer state are divided (FSDP); they share the batch, "
              "too. -1: the ranks that "
              "data_parallel_replicate_degree leaves. The numbers are the same",
       .unit = "ranks", .rule = {.min = 1, .also = -1}},
      {TUTTI_KEY(parallelism, tensor_parallel_degree),
       .doc = "ranks over which each matrix product is divided: a power of two that the model allows; they read the "
              "same rows. The numbers are the same",
       .unit = "ranks", .rule = at_least(1)},
      {TUTTI_KEY(parallelism, context_parallel_degree), .doc = "ranks over which each sequence is divided",
       .unit = "ranks", .rule = degree_one()},
      {TUTTI_KEY(parallelism, pipeline_parallel_degree), .doc = "ranks over which the layers are divided",
       .unit = "ranks", .rule = degree_one()},
      {TUTTI_KEY(parallelism, expert_parallel_degree),
       .doc = "neighbouring ranks, data-parallel and tensor-parallel ones, over which experts are divided, and to "
              "which tokens "
              "travel: a power of two that divides the ranks and the experts (docs/moe.md). The numbers are the same",
       .unit = "ranks", .rule = at_least(1)},
      {TUTTI_KEY(parallelism, expert_parallel_comm_backend),
       .doc = "how tokens travel to the experts of other ranks. standard: an all-to-all with room for the worst case; "
              "standard_exact: counts first, then room for as many rows as come, without "
              "training.compile; direct_store: rows are stored at their final place in the memory of other ranks; "
              "gather_on_read: experts read the tokens of other ranks in place. The last two need "
              "a transport that shares memory (docs/moe.md). The numbers are the same",
       .unit = "", .rule = one_of({"standard", "standard_exact", "direct_store", "gather_on_read"})},
      {TUTTI_KEY(parallelism, enable_sequence_parallel),
       .doc = "with tensor parallelism, divide norms, dropout and residuals by tokens. The numbers are the same",
       .unit = ""},
      {TUTTI_KEY(parallelism, enable_async_tensor_parallel),
       .doc = "with tensor parallelism and training.compile, multiply the parts of ranks as they come, and sum them as "
              "others wait for them, instead of gathering first and "
              "summing last. The numbers are the same",
       .unit = ""},
      {TUTTI_KEY(parallelism, fsdp_reshard_after_forward),
       .doc = "with divided parameters, where ranks do not share memory: whether a rank gives whole parameters back "
              "between forward "
              "and backward; default: those of the repeated blocks; a number n: those, of which it keeps 1/n until "
              "backward and gathers the rest among n neighbours, such as the ranks of a host. "
              "The numbers are the same",
       .unit = "", .rule = {.choices = {"default", "always", "never"}, .or_count = true}},
      {TUTTI_KEY(parallelism, outer_dp_sharding_strategy),
       .doc = "with replicas of divided parameters: no_shard: each replica has masters, reduced gradients and "
              "optimizer state; optim: all data-parallel ranks divide them, while parameters that "
              "forward reads are divided over data_parallel_shard_degree ranks. Without replicas, or without divided "
              "parameters, both are the same. The numbers are the same",
       .unit = "", .rule = one_of({"no_shard", "optim"})},
      {TUTTI_KEY(parallelism, reduce_scatter_max_input_buffers),
       .doc = "with data_parallel_overlap = backward: how many buckets of gradients may be on their way at once. More "
              "help where the network is slower than backward, and each takes "
              "the memory of a bucket and of what comes in. The numbers are the same",
       .unit = "buckets", .rule = at_least(1)},

      {TUTTI_KEY(optimizer, name), .doc = "optimizer", .unit = "", .rule = one_of({"adamw", "sgd"}),
       .resuming = kFixed},
      {TUTTI_KEY(optimizer, lr), .doc = "base learning rate", .unit = "", .rule = at_least(0), .resuming = kTold},
      {TUTTI_KEY(optimizer, beta1), .doc = "AdamW: decay of the first moment", .unit = "", .rule = between(0, 1),
       .resuming = kTold},
      {TUTTI_KEY(optimizer, beta2), .doc = "AdamW: decay of the second moment", .unit = "", .rule = between(0, 1),
       .resuming = kTold},
      {TUTTI_KEY(optimizer, eps), .doc = "AdamW: term added to the square root of the second moment", .unit = "",
       .rule = above(0), .resuming = kTold},
      {TUTTI_KEY(optimizer, weight_decay), .doc = "weight decay; decoupled for adamw, added to the gradient for sgd",
       .unit = "", .rule = at_least(0), .resuming = kTold},
      {TUTTI_KEY(optimizer, momentum), .doc = "SGD: momentum", .unit = "", .rule = between(0, 1), .resuming = kTold},

      {TUTTI_KEY(lr_scheduler, warmup_steps),
       .doc = "steps over which the learning rate rises to its base value; -1: a tenth of training.steps, but at most "
              "200, chosen when the run begins and kept",
       .unit = "steps", .rule = at_least_or_rest(0), .resuming = kTold},
      {TUTTI_KEY(lr_scheduler, decay_ratio),
       .doc = "fraction of the run over which the learning rate decays; -1: all steps after the warm-up", .unit = "",
       .rule = {.min = 0, .max = 1, .also = -1}, .resuming = kTold},
      {TUTTI_KEY(lr_scheduler, decay_type), .doc = "shape of the decay", .unit = "", .rule = one_of(decay_choices()),
       .resuming = kTold},
      {TUTTI_KEY(lr_scheduler, min_lr_factor), .doc = "fraction of the base learning rate that the decay approaches",
       .unit = "", .rule = between(0, 1), .resuming = kTold},

      {TUTTI_KEY(activation_checkpoint, mode),
       .doc =
           "full: keep only the inputs of each block and recompute the block in backward; memory_budget: recompute as "
           "memory_budget says, requires training.compile",
       .unit = "", .rule = one_of({"none", "full", "memory_budget"})},
      {TUTTI_KEY(activation_checkpoint, memory_budget),
       .doc =
           "0: recompute as much as possible; 1: recompute only what is nearly free; values between trade memory for "
           "time",
       .unit = "", .rule = between(0, 1)},

      {TUTTI_KEY(validation, every), .doc = "steps between validations; 0: never", .unit = "steps", .rule = at_least(0),
       .resuming = kTold},
      {TUTTI_KEY(validation, steps), .doc = "batches per validation; -1: the whole held-out text", .unit = "batches",
       .rule = at_least_or_rest(1), .resuming = kTold},
      {TUTTI_KEY(validation, sample_tokens),
       .doc = "length of the text that the model generates at the end of the run; 0: none", .unit = "tokens",
       .rule = between(0, 1 << 20)},
      {TUTTI_KEY(validation, sample_prompt), .doc = "prompt of that text", .unit = ""},

      {TUTTI_KEY(checkpoint, every), .doc = "steps between checkpoints; 0: only at the end", .unit = "steps",
       .rule = at_least(0)},
      {TUTTI_KEY(checkpoint, keep_latest),
       .doc = "how many checkpoints are kept; older ones are deleted, those of earlier starts included; -1: all",
       .unit = "checkpoints", .rule = at_least_or_rest(1)},
      {TUTTI_KEY(checkpoint, async),
       .doc = "write checkpoints while training continues, from a copy of weights and optimizer state that takes as "
              "much memory again",
       .unit = ""},
      {TUTTI_KEY(checkpoint, initial_load_path),
       .doc = "weights to start from: a run, a checkpoint folder, the folder of a published model, or a .safetensors "
              "file or index",
       .unit = "", .resuming = kTold},

      {TUTTI_KEY(metrics, tensorboard), .doc = "write a TensorBoard event file", .unit = ""},
      {TUTTI_KEY(metrics, report), .doc = "write report.html", .unit = ""},
      {TUTTI_KEY(metrics, peak_gflops),
       .doc = "peak performance of this machine, from which mfu is computed; 0: unknown", .unit = "GFLOP/s",
       .rule = at_least(0)},

      {TUTTI_KEY(profiler, enable),
       .doc = "write a trace of some steps, one file per rank: trace/rank-R.json in the run folder", .unit = ""},
      {TUTTI_KEY(profiler, first_step), .doc = "first traced step, counted from the first step after this start",
       .unit = "steps", .rule = at_least(1)},
      {TUTTI_KEY(profiler, steps), .doc = "number of traced steps", .unit = "steps", .rule = at_least(1)},
      {TUTTI_KEY(profiler, memory), .doc = "also trace every allocation", .unit = ""},
      {TUTTI_KEY(profiler, events_per_thread), .doc = "events kept per thread; further events are dropped and counted",
       .unit = "events", .rule = between(1, 1 << 26)},

      {TUTTI_KEY(run, name), .doc = "name of the run folder; empty: the name of the config file", .unit = ""},
      {TUTTI_KEY(run, dir), .doc = "folder that contains the folders of all runs", .unit = ""},
  };
}

#undef TUTTI_KEY

}  // namespace

std::span<const Section> config_sections() {
  static const std::vector<Section> sections{
      {"model", "The model."},
      {"data", "The text to train on."},
      {"training", "Length of the run, batches and dtypes."},
      {"numerics", "What the bits of the results may depend on."},
      {"runtime", "Threads and communication."},
      {"parallelism", "How work is divided over ranks."},
      {"optimizer", "The optimizer."},
      {"lr_scheduler", "The learning rate over the run."},
      {"activation_checkpoint", "Recomputation of activations in the backward, which saves memory and costs time."},
      {"validation", "Validation on text that the model is not trained on."},
      {"checkpoint", "Saving checkpoints, and starting from saved weights."},
      {"metrics", "Recorded metrics."},
      {"profiler", "Tracing of training steps."},
      {"run", "The folder of the results."},
  };
  return sections;
}

std::span<const Field> config_fields() {
  static const std::vector<Field> fields = make_fields();
  return fields;
}

}  // namespace tutti::train
