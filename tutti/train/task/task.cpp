#include "tutti/train/task/task.h"

#include "tutti/nn/module.h"
#include "tutti/parallel/fully_shard.h"

namespace tutti::train {

std::optional<parallel::ShardedModule> Task::shard(comm::ProcessGroup*, const TensorRanks&,
                                                   std::function<Tensor(const nn::NamedParameter&)>) {
  return std::nullopt;
}

int64_t Task::parameter_count() const { return model().parameter_count(); }

void Task::initialize() { nn::initialize(model()); }

}  // namespace tutti::train
