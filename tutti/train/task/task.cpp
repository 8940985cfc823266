#include "tutti/train/task/task.h"

#include "tutti/nn/module.h"
#include "tutti/parallel/fully_shard.h"

namespace tutti::train {

std::optional<parallel::ShardedModule> Task::shard(comm::ProcessGroup*, const TensorRanks&,
                                                   std::function<Tensor(const nn::NamedParameter&)>) {
  return std::nullopt;
}

}  // namespace tutti::train
