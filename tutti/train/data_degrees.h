// How many data-parallel ranks hold replicas, and over how many parameters are divided.
#pragma once

#include <cstdint>

#include "tutti/train/config.h"

namespace tutti::train {

struct DataDegrees {
  int64_t replicate = 1, shard = 1;
};
// What parallelism.data_parallel_replicate_degree and ..._shard_degree say for `ranks` ranks; one of them may be -1, which is the rest. UsageError,
// with the degrees that are possible, when they do not multiply to the ranks, and when both are -1.
DataDegrees data_degrees(const ParallelismConfig& config, int64_t ranks);

}  // namespace tutti::train
