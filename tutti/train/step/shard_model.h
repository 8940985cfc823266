// The data-parallel layout of a run: how many ranks hold replicas, over how many parameters are divided, and the model
// divided so.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"
#include "tutti/models/language_model.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/train/step/tensor_ranks.h"

namespace tutti::train {

// The modules that stand in a list, and in no other such module: "model.layers.3". Each is a group of fully_shard().
std::vector<nn::NamedModule> repeated_blocks(nn::Module& model);

// Divides the model's parameters as configured: each repeated block is a group, its experts another if ranks divide
// them already, and the rest one more. Nothing where the shard degree is 1. `divided` is what divide_model() has made
// of the model before. `memory`: of the masters, see parallel::FullyShardOptions. Collective; before optimizers are
// made and values are drawn.
std::optional<parallel::ShardedModule> shard_model(models::LanguageModel& model, const ParallelismConfig& config,
                                                   comm::ProcessGroup* group, const TensorRanks& divided = {},
                                                   std::function<Tensor(const nn::NamedParameter&)> memory = {});

// "mesh dp_shard 4: rank 0 stores 1.9 of 7.7 MiB of the parameters, a rank sends up to 6.9 MiB a step; the ranks read
// one copy of 7.7 MiB": what is sent is by the plan (step_plan.h).
std::string describe_mesh(const models::LanguageModel& model, const parallel::ShardedModule* sharded,
                          const Config& config, int64_t ranks);

}  // namespace tutti::train
