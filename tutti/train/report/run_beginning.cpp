#include "tutti/train/report/run_beginning.h"

#include "tutti/nn/module.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"
#include "tutti/train/step/plan_layouts.h"
#include "tutti/train/task/task.h"

namespace tutti::train {
namespace {

std::string first_words(const Run& run) {
  const char* plural = run.ranks == 1 ? "" : "s";
  if (!run.start.continues()) {
    return fmt::format("training {} parameters on {} rank{}, {}", run.task->parameter_count(), run.ranks, plural,
                       run.task->rows_words());
  }
  if (run.survival->is_begun())
    return fmt::format("going on with {} rank{} from step {} in memory", run.ranks, plural, run.state.step);
  return fmt::format("resuming {} from step {}, {}", run.start.path.string(), run.state.step,
                     run.task->place_words(run.state));
}

}  // namespace

void open_log(Run& run, const std::string& advice) {
  if (run.rank != 0) return;
  const Config& config = run.config;
  run.log =
      std::make_unique<RunLog>(*run.start.folder, config, run.state.step - (run.unfinished ? 1 : 0), run.options.quiet);
  RunLog& log = *run.log;
  if (run.start.folder->moved_to())
    log.note(fmt::format("moved the old run to {}", run.start.folder->moved_to()->string()));
  for (const std::string& note : run.start.notes) log.warn(note);
  if (!run.survival->is_begun()) log.note(run.task->data_words());
  log.note(first_words(run));
  for (const LostRank& lost : run.lost)
    log.warn(fmt::format("rank {} (pid {} on {}) was lost in step {}: {} rank{} on from step {}; {:.2f} s were lost",
                         lost.rank, lost.pid, lost.host, lost.step, run.ranks, run.ranks == 1 ? " goes" : "s go",
                         run.state.step, lost.seconds_lost));
  run.note(run.task->layout_words(run));
  run.note(advice);
  std::vector<std::pair<std::string, std::string>> facts = run.task->facts();
  facts.emplace_back("ranks", std::to_string(run.ranks));
  facts.emplace_back("mesh", mesh_name(data_degrees(config.parallelism, run.ranks)));
  log.set_facts(std::move(facts));
}

}  // namespace tutti::train
