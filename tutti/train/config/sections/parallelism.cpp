// [parallelism]: the keys with their defaults, and their rules with other keys.
#include <algorithm>

#include "tutti/train/config/data_degrees.h"
#include "tutti/train/config/section.h"

namespace tutti::train {
namespace {

std::vector<Field> parallelism_keys() {
  return {
      {TUTTI_KEY(parallelism, int64_t, data_parallel_replicate_degree, -1),
       .doc = "replicas of the parameters, each on one rank or divided over several, which share the batch; -1: the "
              "ranks that data_parallel_shard_degree leaves",
       .unit = "ranks", .rule = {.min = 1, .also = -1}},
      {TUTTI_KEY(parallelism, std::string, data_parallel_schedule, "auto"),
       .doc = "when ranks exchange gradients; once_a_step: at its end, the fewest bytes; every_round: after each round "
              "of virtual shards; auto: every_round where ranks divide experts or the tokens that come to them, "
              "once_a_step elsewhere. The numbers are the same",
       .unit = "", .rule = one_of({"auto", "once_a_step", "every_round"})},
      {TUTTI_KEY(parallelism, std::string, data_parallel_overlap, "none"),
       .doc = "backward: with once_a_step and two virtual shards a rank or more, gradients begin to move under the "
              "backward of the last shard. The numbers are the same",
       .unit = "", .rule = one_of({"none", "backward"})},
      {TUTTI_KEY(parallelism, int64_t, data_parallel_shard_degree, 1),
       .doc = "ranks over which parameters, gradients and optimizer state are divided (FSDP); they share the batch, "
              "too. -1: the ranks that "
              "data_parallel_replicate_degree leaves. The numbers are the same",
       .unit = "ranks", .rule = {.min = 1, .also = -1}},
      {TUTTI_KEY(parallelism, int64_t, tensor_parallel_degree, 1),
       .doc = "ranks over which each matrix product is divided: a power of two that the model allows; they read the "
              "same rows. The numbers are the same",
       .unit = "ranks", .rule = at_least(1)},
      {TUTTI_KEY(parallelism, int64_t, context_parallel_degree, 1), .doc = "ranks over which each sequence is divided",
       .unit = "ranks", .rule = degree_one()},
      {TUTTI_KEY(parallelism, int64_t, pipeline_parallel_degree, 1), .doc = "ranks over which the layers are divided",
       .unit = "ranks", .rule = degree_one()},
      {TUTTI_KEY(parallelism, int64_t, expert_parallel_degree, 1),
       .doc = "neighbouring ranks, data-parallel and tensor-parallel ones, over which experts are divided, and to "
              "which tokens "
              "travel: a power of two that divides the ranks and the experts (docs/moe.md). The numbers are the same",
       .unit = "ranks", .rule = at_least(1)},
      {TUTTI_KEY(parallelism, std::string, expert_parallel_comm_backend, "standard"),
       .doc = "how tokens travel to the experts of other ranks. standard: an all-to-all with room for the worst case; "
              "standard_exact: counts first, then room for as many rows as come, without "
              "training.compile; direct_store: rows are stored at their final place in the memory of other ranks; "
              "gather_on_read: experts read the tokens of other ranks in place. The last two need "
              "a transport that shares memory (docs/moe.md). The numbers are the same",
       .unit = "", .rule = one_of({"standard", "standard_exact", "direct_store", "gather_on_read"}),
       .only_of = ModelKind::language},
      {TUTTI_KEY(parallelism, bool, enable_sequence_parallel, true),
       .doc = "with tensor parallelism, divide norms, dropout and residuals by tokens. The numbers are the same",
       .unit = "", .only_of = ModelKind::language},
      {TUTTI_KEY(parallelism, bool, enable_async_tensor_parallel, false),
       .doc = "with tensor parallelism and training.compile, multiply the parts of ranks as they come, and sum them as "
              "others wait for them, instead of gathering first and "
              "summing last. The numbers are the same",
       .unit = "", .only_of = ModelKind::language},
      {TUTTI_KEY(parallelism, std::string, fsdp_reshard_after_forward, "default"),
       .doc = "with divided parameters, where ranks do not share memory: whether a rank gives whole parameters back "
              "between forward "
              "and backward; default: those of the repeated blocks; a number n: those, of which it keeps 1/n until "
              "backward and gathers the rest among n neighbours, such as the ranks of a host. "
              "The numbers are the same",
       .unit = "", .rule = {.choices = {"default", "always", "never"}, .or_count = true},
       .only_of = ModelKind::language},
      {TUTTI_KEY(parallelism, std::string, outer_dp_sharding_strategy, "no_shard"),
       .doc = "with replicas of divided parameters: no_shard: each replica has masters, reduced gradients and "
              "optimizer state; optim: all data-parallel ranks divide them, while parameters that "
              "forward reads are divided over data_parallel_shard_degree ranks. Without replicas, or without divided "
              "parameters, both are the same. The numbers are the same",
       .unit = "", .rule = one_of({"no_shard", "optim"}), .only_of = ModelKind::language},
      {TUTTI_KEY(parallelism, int64_t, reduce_scatter_max_input_buffers, 2),
       .doc =
           "with data_parallel_overlap = backward: how many buckets of gradients may be on their way at once, over "
           "gloo, hier and mpi each with connections of its own. More help where rounds wait for a network, and each "
           "takes the memory of a bucket and of what comes in. The numbers are the same",
       .unit = "buckets", .rule = at_least(1)},
  };
}

void check_parallelism(const Config& config, Faults& faults) {
  const ParallelismConfig& p = config.parallelism;
  const int64_t shards = config.numerics.virtual_shards;
  faults.check(p.data_parallel_replicate_degree <= shards,
               "parallelism.data_parallel_replicate_degree = {} is more than numerics.virtual_shards = {}; every rank "
               "needs at least one shard of the batch",
               p.data_parallel_replicate_degree, shards);
  const int64_t replicas = std::max<int64_t>(p.data_parallel_replicate_degree, 1),
                parts = std::max<int64_t>(p.data_parallel_shard_degree, 1);
  faults.check(replicas > shards || replicas * parts <= shards,
               "parallelism.data_parallel_replicate_degree x data_parallel_shard_degree = {} x {} is more than "
               "numerics.virtual_shards = {}; every rank needs at least one shard of the batch",
               replicas, parts, shards);
  faults.check(p.data_parallel_overlap == "none" || p.data_parallel_schedule != "every_round",
               "parallelism.data_parallel_overlap is 'backward' and data_parallel_schedule is 'every_round'; gradients "
               "move under backward with once_a_step only");
  faults.check(!p.enable_async_tensor_parallel || config.training.compile,
               "parallelism.enable_async_tensor_parallel is true and training.compile is false; the compiler joins "
               "collectives and products: set training.compile = true");
}

void check_divided_model(const Config& config, Faults& faults) {
  faults.collect([&] { check_tensor_parallel(config); });
  faults.collect([&] { check_expert_parallel(config); });
}

void check_parallel_clicks(const Config& config, Faults& faults) {
  const ParallelismConfig& p = config.parallelism;
  constexpr const char* kInstead = "the ranks of a click model share the batch only; set it to 1";
  faults.check(p.tensor_parallel_degree == 1, "parallelism.tensor_parallel_degree = {}: {}", p.tensor_parallel_degree,
               kInstead);
  faults.check(p.expert_parallel_degree == 1, "parallelism.expert_parallel_degree = {}: {}", p.expert_parallel_degree,
               kInstead);
  faults.check(p.data_parallel_shard_degree == 1, "parallelism.data_parallel_shard_degree = {}: {}",
               p.data_parallel_shard_degree, kInstead);
}

}  // namespace

TUTTI_SECTION(parallelism, ParallelismConfig, 5) = {
    .name = "parallelism",
    .doc = "How work is divided over ranks.",
    .keys = parallelism_keys,
    .check = check_parallelism,
    .check_language_model = check_divided_model,
    .check_click_model = check_parallel_clicks,
};

}  // namespace tutti::train
