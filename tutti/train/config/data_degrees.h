// How many data-parallel ranks hold replicas, over how many parameters are divided, how many tensor-parallel ranks each
// of them is, and how many neighbouring ranks divide the experts.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/train/config/config.h"

namespace tutti::train {

struct DataDegrees {
  int64_t replicate = 1, shard = 1, tensor = 1;
  int64_t expert = 1;                                 // neighbouring ranks
  int64_t data() const { return replicate * shard; }  // ranks that share the batch
  // How many ranks have the same experts.
  int64_t expert_data() const { return data() * tensor / expert; }
  // How many ranks divide what one has of the experts: the others of those that divide parameters, where `expert` of
  // them divide the experts first.
  int64_t expert_shard() const { return shard > 1 && shard * tensor % expert == 0 ? shard * tensor / expert : 1; }
};
// The meaning of parallelism.data_parallel_replicate_degree, ..._shard_degree, tensor_parallel_degree and
// expert_parallel_degree say for `ranks` ranks; one of the first two may be -1, which is the rest. UsageError, with the
// degrees that are possible, when they do not multiply to the ranks, when both are -1, and when the last does not
// divide the ranks.
DataDegrees data_degrees(const ParallelismConfig& config, int64_t ranks);

// When ranks exchange gradients, once_a_step or every_round: parallelism.data_parallel_schedule, where "auto" is what
// the layout needs. Ranks that divide the experts of a model, or the tokens that come to them, need every_round.
std::string chosen_schedule(const ParallelismConfig& config, bool has_experts);

// UsageError, naming the keys, for a degree of tensor parallelism that would have other bits than one rank, and for
// what cannot be combined with it.
void check_tensor_parallel(const Config& config);
// The same for a degree of expert parallelism.
void check_expert_parallel(const Config& config);

// Among how many ranks those of `shard` keep the parameters of a block after its forward, by
// parallelism.fsdp_reshard_after_forward: 1, each keeps the whole; `shard`, none keeps more than it stores. UsageError
// for a number that has no meaning there, see parallel::FullyShardOptions. `is_shared`: the ranks read one copy in the
// memory of their host.
int64_t reshard_degree(const ParallelismConfig& config, int64_t shard, bool is_shared);

}  // namespace tutti::train
