// Records the timeline of one step on all ranks.
#pragma once

#include <cstdint>
#include <optional>

#include "tutti/comm/process_group.h"
#include "tutti/runtime/trace/exchange_meter.h"
#include "tutti/runtime/trace/profiler.h"
#include "tutti/train/report/step_timeline.h"

namespace tutti::train {

// Records the second step of a start, in which everything is compiled. Ranks whose clocks differ begin at 0 each.
class StepTimelineRecorder {
 public:
  // `is_on` is the same on all ranks. Null: one rank.
  StepTimelineRecorder(bool is_on, comm::ProcessGroup* group) : group_(group), is_on_(is_on) {}

  // Call these around every step that is computed, on all ranks and on the thread that computes it. after_step() gives
  // the timeline after the recorded step, to all ranks; collective then.
  void before_step() noexcept;
  std::optional<StepTimeline> after_step(int64_t step);

 private:
  comm::ProcessGroup* const group_;
  const bool is_on_;
  int64_t steps_begun_ = 0;
  Profiler profiler_;
  std::optional<ExchangeMeter> exchanges_;  // of the step that is recorded
};

}  // namespace tutti::train
