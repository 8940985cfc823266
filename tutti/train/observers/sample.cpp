// Samples text when the run has taken all its steps: sample.txt.
#include <optional>
#include <string>

#include "tutti/parallel/fully_shard.h"
#include "tutti/train/observer.h"
#include "tutti/train/report/report.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"
#include "tutti/train/task/task.h"

namespace tutti::train {
namespace {

class Sample final : public Observer {
 public:
  using Observer::Observer;
  void on_end() override {
    if (run_.state.step < run_.config.training.steps || run_.config.validation.sample_tokens <= 0) return;
    if (run_.sharded) whole_.emplace(*run_.sharded);
    run_.survival->may_be_lost_at("sampling", run_.state.step);
    const std::optional<std::string> text = run_.task->sample(run_);
    if (!text || !run_.log) return;
    run_.log->sample(run_.state.step, *text);
    run_.note("sample: " + displayable(*text));
  }

 private:
  std::optional<parallel::UnshardedScope> whole_;  // until all ranks are done: rank 0 reads alone
};

}  // namespace

TUTTI_OBSERVER(sample) = {.turn = Turn::sample, .make = make_observer<Sample>};

}  // namespace tutti::train
