// Writes the record of each step: metrics.jsonl, TensorBoard and the status line.
#include "tutti/train/observer.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"

namespace tutti::train {
namespace {

class Log final : public Observer {
 public:
  using Observer::Observer;
  void on_record(StepRecord& record) override {
    if (run_.log) run_.log->step(record);
    run_.survival->may_be_lost_at("logged", run_.state.step);
  }
};

}  // namespace

TUTTI_OBSERVER(log) = {.turn = Turn::log, .make = make_observer<Log>};

}  // namespace tutti::train
