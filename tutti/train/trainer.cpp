#include "tutti/train/trainer.h"

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "tutti/ops/sum_to.h"
#include "tutti/parallel/parameter_copies.h"
#include "tutti/runtime/numerics.h"
#include "tutti/runtime/rank_context.h"
#include "tutti/train/agreement.h"
#include "tutti/train/checkpoint/checkpoint.h"
#include "tutti/train/observer.h"
#include "tutti/train/report/machine.h"
#include "tutti/train/report/run_beginning.h"
#include "tutti/train/run.h"
#include "tutti/train/signals.h"
#include "tutti/train/step/check_memory.h"
#include "tutti/train/step/train_step.h"
#include "tutti/train/survival/survivors.h"
#include "tutti/train/task/task.h"

namespace tutti::train {
namespace {

// A run loads, takes its steps while others observe them, and ends.
class Trainer {
 public:
  Trainer(const Config& config, const TrainerOptions& options, RunStart start, RunData data)
      : numerics_(config.numerics.mode == "fast" ? NumericsMode::fast : NumericsMode::strict),
        grain_(config.numerics.token_grain),
        run_(config, options, std::move(start), std::move(data)),
        step_(run_),
        observers_(make_observers(run_)) {}

  TrainerResult train() {
    load();
    if (run_.survival->is_over()) {
      run_.survival->note_done();
      return {.step = run_.state.step};
    }
    const StopSignals signals;
    open_log(run_, step_.advice());
    run_.result.step = run_.state.step;
    for (const auto& o : observers_) o->on_begin();
    while ((!run_.has_ended() || run_.unfinished) && !run_.result.interrupted) {
      StepRecord record = next_step();
      for (const auto& o : observers_) o->on_record(record);
      const bool is_replaced = agree_on_end(signals);
      for (const auto& o : observers_) o->on_step_end();
      if (is_replaced) leave_team();
      run_.result.step = run_.state.step;
      run_.result.loss = record.loss;
    }
    for (const auto& o : observers_) o->on_end();
    if (run_.ranks > 1) run_.group->barrier();
    run_.survival->note_done();
    run_.survival->may_be_lost_at("done", run_.state.step);
    return run_.result;
  }

 private:
  void load();
  StepRecord next_step();
  bool agree_on_end(const StopSignals& signals);
  [[noreturn]] void leave_team();

  const NumericsScope numerics_;
  const TokenGrainScope grain_;
  Run run_;
  TrainStep step_;
  std::vector<std::unique_ptr<Observer>> observers_;
};

// What the run starts from: the memory of an earlier team, a checkpoint, or weights.
void Trainer::load() {
  // Rank 0 owns the folder; the others read what it holds once rank 0 has prepared it.
  if (!run_.survival->is_begun())
    on_first_rank(run_.group, [&] { settle_run(run_.start, run_.config, run_.options.fresh, *run_.task); });
  const std::string& weights = run_.config.checkpoint.initial_load_path;
  if (const auto left = run_.survival->recover(*run_.optimizer)) {
    run_.state.step = left->facts.step;
    run_.state.items_seen = left->facts.items_seen;
    run_.state.next_row = left->facts.next_row;
    run_.lost = left->lost;
    std::vector<ExpertLoad> loads = run_.experts.restore(left->extra);
    if (left->is_unfinished) run_.unfinished = step_.record_of(left->facts, std::move(loads));
  } else if (run_.start.continues()) {
    run_.state = load_checkpoint(*run_.start.checkpoint, run_.model, *run_.optimizer, run_.group, run_.task->tables());
  } else if (!weights.empty()) {
    const std::string note = run_.task->load_first_weights(weights);
    if (!note.empty()) run_.start.notes.push_back(note);
  }
  run_.task->resume(run_.state);
  run_.state.inputs = std::move(run_.inputs);
  run_.survival->begin(run_.state, *run_.optimizer, run_.experts.record({}));
}

// The step that an earlier team has left unfinished, or the next one.
StepRecord Trainer::next_step() {
  StepRecord record;
  if (run_.unfinished) {
    record = *std::exchange(run_.unfinished, std::nullopt);
  } else {
    for (const auto& o : observers_) o->before_step();
    record = step_.take([&] {
      for (const auto& o : observers_) o->before_change();
    });
    for (const auto& o : observers_) o->after_step();
  }
  record.lost_ranks = std::exchange(run_.lost, {});
  return record;
}

// Ranks may see a signal, or that another team begins, at different steps: after each they agree whether the run stops.
// Returns whether another team goes on.
bool Trainer::agree_on_end(const StopSignals& signals) {
  std::array<int64_t, 2> news{signals.requested(), run_.survival->is_replaced()};
  if (run_.ranks > 1) run_.group->all_reduce_values<int64_t>(news);
  run_.result.interrupted = news[0] > 0 && !run_.has_ended();
  return news[1] > 0;
}

void Trainer::leave_team() {
  for (const auto& o : observers_) o->on_team_end();
  throw TeamIsOver(fmt::format("step {} is done, and another team goes on", run_.state.step));
}

}  // namespace

TrainerResult train(const Config& given, const TrainerOptions& options) {
  validate(given);
  // A wrong name, and what cannot fit, are said before the data is read.
  const std::string left = state_left_in(options.survivors);
  if (left.empty())
    check_memory(given, options.group == nullptr ? 1 : options.group->size(), 1,
                 options.group == nullptr || parallel::shares_memory(*options.group),
                 machine_memory());  // else the state has its memory
  if (given.runtime.threads > 0) RankContext::current().set_threads(static_cast<int>(given.runtime.threads));
  RunStart start =
      left.empty() ? find_run(given, options.fresh, options.group) : rejoin_run(given, left, options.group);
  const Config config = settled(given, start.saved.inputs.settings);
  RunData data = open_run_data(config, options.cache_folder, start, options.group);
  if (start.is_in_memory) start.notes.clear();  // they were said when the run started
  return Trainer(config, options, std::move(start), std::move(data)).train();
}

}  // namespace tutti::train
