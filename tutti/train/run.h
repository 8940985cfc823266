// Run: a training run and all that it is made of, as the trainer, its step and its observers (observer.h) see it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/runtime/allocator.h"
#include "tutti/train/config/config.h"
#include "tutti/train/report/metrics.h"
#include "tutti/train/run_start.h"
#include "tutti/train/step/expert_balance.h"
#include "tutti/train/step/tensor_ranks.h"
#include "tutti/train/survival/survival.h"
#include "tutti/train/trainer.h"

namespace tutti::nn {
class Module;
}
namespace tutti::parallel {
class ShardedModule;
}

namespace tutti::train {

class RunLog;
class Task;

struct Run {
  // Builds model and optimizer, divided over ranks as configured; a run that begins gets its first values. Collective.
  Run(const Config& config, const TrainerOptions& options, RunStart start, RunData data);
  ~Run();

  const Config config;
  const TrainerOptions options;
  comm::ProcessGroup* const group;
  const int rank, ranks;
  RunStart start;
  const std::unique_ptr<Task> task;
  RunInputs inputs;  // of this start
  nn::Module& model;
  const TensorRanks tensor;              // where the model is divided over ranks
  comm::ProcessGroup* const data_group;  // the ranks that share the batch
  ExpertBalance experts;
  const std::unique_ptr<Survival> survival;
  std::unique_ptr<const parallel::ShardedModule> sharded;  // where parameters are divided over ranks
  std::unique_ptr<optim::Optimizer> optimizer;
  const int64_t rows_per_shard;
  const int64_t end;  // the step after which this start ends

  TrainState state;
  TrainerResult result;
  std::optional<StepRecord> unfinished;  // a step that an earlier team has committed, but neither logged nor saved
  std::vector<LostRank> lost;            // since the last step that is logged
  std::unique_ptr<RunLog> log;           // on rank 0, once the run is loaded
  MemoryStatistics memory;               // of the step with the highest peak
  int64_t saved = -1;                    // the step of the newest checkpoint, if it is that of `state`

  int64_t rows() const { return config.numerics.virtual_shards * rows_per_shard; }  // of a step
  bool is_last() const { return state.step == config.training.steps; }
  bool has_ended() const { return state.step >= end; }
  std::filesystem::path checkpoints() const { return start.path / "checkpoint"; }
  // Says it on rank 0; an empty text says nothing.
  void note(const std::string& text) const;
};

}  // namespace tutti::train
