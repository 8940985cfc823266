// Saves checkpoints, as often as checkpoint.every says, after the last step, and when the run is stopped.
#include <filesystem>
#include <utility>

#include "tutti/optim/optimizer.h"
#include "tutti/train/agreement.h"
#include "tutti/train/checkpoint/background_saver.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/observer.h"
#include "tutti/train/run.h"
#include "tutti/train/task/task.h"

namespace tutti::train {
namespace {

class Save final : public Observer {
 public:
  explicit Save(Run& run) : Observer(run) {
    if (run.config.checkpoint.async) saver_.emplace(run.group, run.model, *run.optimizer, run.task->tables());
  }
  void on_begin() override {
    missing_ = missing_checkpoint();
    const bool is_saved =
        run_.start.checkpoint || (run_.survival->is_begun() && std::filesystem::exists(step_folder()));
    run_.saved = is_saved ? run_.state.step : -1;
    if (missing_ > 0 && !run_.unfinished) replace_missing();  // else the step is logged first
  }
  void before_change() override {
    if (saver_) saver_->before_change();
  }
  void on_step_end() override {
    const int64_t every = run_.config.checkpoint.every;
    if (missing_ > 0) replace_missing();
    else if (run_.has_ended() || run_.result.interrupted || (every > 0 && run_.state.step % every == 0)) save();
  }
  void on_team_end() override { wait(); }  // the next team has other writers
  void on_end() override { wait(); }

 private:
  std::filesystem::path step_folder() const { return run_.checkpoints() / fmt::format("step-{}", run_.state.step); }
  void save() {
    TrainState& state = run_.state;
    const int64_t keep_latest = run_.config.checkpoint.keep_latest;
    state.optimizer_steps = run_.optimizer->steps_taken();
    run_.survival->may_be_lost_at("saving", state.step);
    run_.survival->note_save(state.step);
    if (saver_) {
      wait();
      saver_->save(run_.checkpoints(), run_.model, *run_.optimizer, state, keep_latest);
    } else {
      save_checkpoint(run_.checkpoints(), run_.model, *run_.optimizer, state, keep_latest, run_.group,
                      run_.task->tables());
      note_saved(step_folder());
    }
    run_.saved = state.step;
  }
  void wait() {
    if (saver_) note_saved(saver_->wait());
  }
  // Says that a checkpoint is whole; an empty path says nothing.
  void note_saved(const std::filesystem::path& folder) {
    if (!folder.empty()) run_.note(fmt::format("saved {}", folder.string()));
  }
  // The step of the last checkpoint that was begun, if it was being written in the background when a rank was lost, and
  // is not there; 0: none. The same on all ranks.
  int64_t missing_checkpoint() const {
    if (!saver_ || !run_.survival->is_begun()) return 0;
    const int64_t due = run_.survival->begun_save();
    const auto newest = newest_checkpoint(run_.checkpoints());
    const bool is_there = due == 0 || (newest && *step_of(*newest) >= due);
    return value_of_first_rank(run_.group, is_there ? 0 : due);
  }
  void replace_missing() {
    run_.note(fmt::format("the checkpoint of step {} was lost with a rank that wrote it; step {} is saved in its place",
                          std::exchange(missing_, 0), run_.state.step));
    save();
  }

  std::optional<BackgroundSaver> saver_;  // with checkpoint.async
  int64_t missing_ = 0;                   // the step of a checkpoint that a rank was lost with
};

}  // namespace

TUTTI_OBSERVER(save) = {.turn = Turn::save, .make = make_observer<Save>};

}  // namespace tutti::train
