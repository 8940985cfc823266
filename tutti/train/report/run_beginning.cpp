#include "tutti/train/report/run_beginning.h"

#include "tutti/io/token_dataset.h"
#include "tutti/models/decoder_config.h"
#include "tutti/models/language_model.h"
#include "tutti/parallel/fully_shard.h"
#include "tutti/train/report/run_log.h"
#include "tutti/train/run.h"
#include "tutti/train/step/plan_layouts.h"
#include "tutti/train/step/shard_model.h"

namespace tutti::train {
namespace {

std::string first_words(const Run& run) {
  const char* plural = run.ranks == 1 ? "" : "s";
  if (!run.start.continues()) {
    return fmt::format("training {} parameters on {} rank{}, {} training rows of {} tokens",
                       run.model->parameter_count(), run.ranks, plural, run.data->rows_per_epoch(),
                       run.config.data.sequence_length);
  }
  if (run.survival->is_begun())
    return fmt::format("going on with {} rank{} from step {} in memory", run.ranks, plural, run.state.step);
  const DataCursor cursor = run.data->cursor_at(run.state.next_row);
  return fmt::format("resuming {} from step {}, row {} of epoch {}", run.start.path.string(), run.state.step,
                     cursor.row, cursor.epoch);
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
  if (!run.survival->is_begun()) log.note(describe(run.data->corpus().counts()));
  log.note(first_words(run));
  for (const LostRank& lost : run.lost)
    log.warn(fmt::format("rank {} (pid {} on {}) was lost in step {}: {} rank{} on from step {}; {:.2f} s were lost",
                         lost.rank, lost.pid, lost.host, lost.step, run.ranks, run.ranks == 1 ? " goes" : "s go",
                         run.state.step, lost.seconds_lost));
  if (run.sharded || run.tensor.mesh != nullptr || run.tensor.experts != nullptr)
    log.note(describe_mesh(*run.model, run.sharded.get(), config, run.ranks));
  run.note(advice);
  log.set_facts({{"model", run.model->config().name()},
                 {"parameters", std::to_string(run.model->parameter_count())},
                 {"tokenizer", run.tokenizer->name()},
                 {"ranks", std::to_string(run.ranks)},
                 {"mesh", mesh_name(data_degrees(config.parallelism, run.ranks))}});
}

}  // namespace tutti::train
