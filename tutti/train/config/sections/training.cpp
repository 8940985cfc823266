// [training]: the keys with their defaults, and their rules with other keys.
#include "tutti/train/config/section.h"
#include "tutti/train/survival/survival_rules.h"

namespace tutti::train {
namespace {

std::vector<Field> training_keys() {
  return {
      {TUTTI_KEY(training, int64_t, steps, 1000), .doc = "total number of optimizer steps of the run", .unit = "steps",
       .rule = at_least(1), .resuming = Resuming::told},
      {TUTTI_KEY(training, int64_t, global_batch_tokens, 8192), .doc = "tokens per optimizer step, over all ranks",
       .unit = "tokens", .rule = between(1, 1 << 30), .resuming = Resuming::fixed, .only_of = ModelKind::language},
      {TUTTI_KEY(training, bool, compile, false),
       .doc = "compile forward and backward: they are captured once and then run as a few fused kernels; same bits",
       .unit = ""},
      {TUTTI_KEY(training, int64_t, loss_max_bytes, 0),
       .doc = "compute projection and loss from chunks of the logits that take at most this much memory; 0: from all "
              "logits at once; same bits",
       .unit = "bytes", .rule = at_least(0), .only_of = ModelKind::language},
      {TUTTI_KEY(training, double, max_norm, 1.0), .doc = "clip gradients to this global norm; 0: no clipping",
       .unit = "", .rule = at_least(0), .resuming = Resuming::fixed},
      {TUTTI_KEY(training, std::string, dtype, "float32"), .doc = "dtype of the master weights", .unit = "",
       .rule = one_of({"float32"}), .resuming = Resuming::fixed},
      {TUTTI_KEY(training, std::string, mixed_precision_param, "float32"),
       .doc = "dtype in which forward and backward compute", .unit = "", .rule = one_of({"float32", "bfloat16"}),
       .resuming = Resuming::fixed},
      {TUTTI_KEY(training, std::string, mixed_precision_reduce, "float32"),
       .doc = "dtype in which gradients are summed", .unit = "", .rule = one_of({"float32"}),
       .resuming = Resuming::fixed},
      {TUTTI_KEY(training, int64_t, seed, 42), .doc = "seed of weight initialization, shuffling and sampled text",
       .unit = "", .rule = at_least(0), .resuming = Resuming::fixed},
      {TUTTI_KEY(training, bool, survive_rank_loss, false),
       .doc = "go on without a rank that is killed, from the step in which it was: masters, optimizer state and "
              "gradients lie in memory that the launcher holds. For data ranks "
              "of one host that share its memory. The numbers are the same",
       .unit = ""},
  };
}

void check_training(const Config& config, Faults& faults) {
  const int64_t batch = config.training.global_batch_tokens, length = config.data.sequence_length;
  const int64_t sequences = batch / length, shards = config.numerics.virtual_shards;
  faults.check(batch % length == 0,
               "training.global_batch_tokens = {} is no multiple of data.sequence_length = {}; try {}", batch, length,
               (batch + length - 1) / length * length);
  faults.check(batch % length != 0 || sequences % shards == 0,
               "training.global_batch_tokens / data.sequence_length = {} sequences cannot be divided evenly over "
               "numerics.virtual_shards = {}; try training.global_batch_tokens = {}",
               sequences, shards, (sequences / shards + 1) * shards * length);
  faults.collect([&] { check_survival(config); });
}

void check_training_of_clicks(const Config& config, Faults& faults) {
  const TrainingConfig& t = config.training;
  faults.check(!t.compile, "training.compile is true: the lookups of sparse tables are not compiled; leave it out");
  faults.check(t.mixed_precision_param == "float32",
               "training.mixed_precision_param is '{}': click models compute in float32; leave it out",
               t.mixed_precision_param);
  faults.check(!t.survive_rank_loss,
               "training.survive_rank_loss is true: the tables of a click model do not lie in memory that outlives a "
               "rank; leave it out, and start with --max-restarts=N: then all ranks go on from the last checkpoint");
}

}  // namespace

TUTTI_SECTION(training, TrainingConfig, 2) = {
    .name = "training",
    .doc = "Length of the run, batches and dtypes.",
    .keys = training_keys,
    .check_language_model = check_training,
    .check_click_model = check_training_of_clicks,
};

}  // namespace tutti::train
