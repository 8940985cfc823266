// Records the timeline of one step for the report.
#include <utility>

#include "tutti/train/observer.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"
#include "tutti/train/step/step_timeline_recorder.h"

namespace tutti::train {
namespace {

class Timeline final : public Observer {
 public:
  explicit Timeline(Run& run) : Observer(run), recorder_(run.config.metrics.report, run.group) {}
  void before_step() override { recorder_.before_step(); }
  void after_step() override {
    std::optional<StepTimeline> timeline = recorder_.after_step(run_.state.step);
    if (run_.log && timeline) run_.log->set_timeline(std::move(*timeline));
  }

 private:
  StepTimelineRecorder recorder_;
};

}  // namespace

TUTTI_OBSERVER(timeline) = {.turn = Turn::trace, .make = make_observer<Timeline>};

}  // namespace tutti::train
