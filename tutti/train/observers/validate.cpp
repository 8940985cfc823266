// Measures the model on the held-out data, as often as validation.every says and after the last step.
#include "tutti/train/observer.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"
#include "tutti/train/task/task.h"

namespace tutti::train {
namespace {

class Validate final : public Observer {
 public:
  using Observer::Observer;
  void on_begin() override {
    if (!is_on() || !run_.log) return;
    const std::optional<Baseline> baseline = run_.task->baseline(run_);
    if (!baseline) return;
    run_.log->set_baseline(baseline->value);
    run_.note(baseline->note);
  }
  void on_record(StepRecord& record) override {
    if (!is_on() || !(run_.is_last() || run_.state.step % run_.config.validation.every == 0)) return;
    run_.survival->may_be_lost_at("validating", run_.state.step);
    run_.task->validate(run_, record);
    run_.result.val_bits_per_byte = record.val_bits_per_byte;
    run_.result.val_auc = record.val_auc;
  }

 private:
  bool is_on() const { return run_.config.validation.every > 0; }
};

}  // namespace

TUTTI_OBSERVER(validate) = {.turn = Turn::measure, .make = make_observer<Validate>};

}  // namespace tutti::train
