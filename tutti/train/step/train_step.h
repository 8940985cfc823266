// One step of training: forward and backward of this rank's virtual shards, the reduction of gradients, the optimizer.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/runtime/function_ref.h"
#include "tutti/train/report/metrics.h"
#include "tutti/train/step/lr_schedule.h"

namespace tutti::comm {
class ProgressThread;
}
namespace tutti::parallel {
class Shards;
}

namespace tutti::train {

struct Run;
class ShardWork;
struct StepFacts;

class TrainStep {
 public:
  // `run` must outlive this. Collective.
  explicit TrainStep(Run& run);
  ~TrainStep();

  // Takes the step that follows run.state.step. `before_change` is called before the values of model and optimizer
  // change. EnvironmentError, with nothing changed, when loss or gradients are not finite. Collective.
  StepRecord take(FunctionRef<void()> before_change);
  // The record of the step that the run stands at, which an earlier team has taken.
  StepRecord record_of(const StepFacts& facts, std::vector<ExpertLoad> loads) const;
  // How the layout could be better; "" when there is nothing to say.
  std::string advice() const;

 private:
  int64_t run_shards(int64_t first_row, double* data_ms);
  void finish_record(StepRecord& record, double seconds) const;

  Run& run_;
  const LrSchedule schedule_;
  std::unique_ptr<comm::ProgressThread> progress_thread_;
  std::unique_ptr<parallel::Shards> shards_;
  std::unique_ptr<ShardWork> work_;
};

}  // namespace tutti::train
