// The data-parallel layout of a run: how many ranks hold replicas, over how many parameters are divided, and the model divided so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tutti/comm/process_group.h"
#include "tutti/models/language_model.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/train/data_degrees.h"

namespace tutti::train {

// Divides the model's parameters as configured: each repeated block is a group, and the rest another. Nothing where the shard degree is 1.
// Collective; before optimizers are made and values are drawn.
std::optional<parallel::ShardedModule> shard_model(models::LanguageModel& model, const ParallelismConfig& config, comm::ProcessGroup* group);

// "mesh dp_shard 4: a rank stores 1.2 of 4.8 MiB of parameters and sends 10.8 MiB a step; the ranks of a host read one copy of 4.8 MiB".
std::string describe_mesh(const parallel::ShardedModule& sharded, const Config& config, int64_t ranks);

}  // namespace tutti::train
