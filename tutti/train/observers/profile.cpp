// Traces the steps that the section [profiler] names.
#include "tutti/train/observer.h"
#include "tutti/train/run.h"
#include "tutti/train/step/step_profiler.h"

namespace tutti::train {
namespace {

class Profile final : public Observer {
 public:
  explicit Profile(Run& run) : Observer(run), profiler_(run.config.profiler, run.start.path / "trace", run.rank) {}
  void before_step() override { run_.note(profiler_.before_step()); }
  void after_step() override { run_.note(profiler_.after_step()); }
  void on_end() override { run_.note(profiler_.finish()); }

 private:
  StepProfiler profiler_;
};

}  // namespace

TUTTI_OBSERVER(profile) = {.turn = Turn::trace, .make = make_observer<Profile>};

}  // namespace tutti::train
