#include "tutti/train/run_start.h"

#include "tutti/core/hash.h"
#include "tutti/runtime/atomic_file.h"
#include "tutti/runtime/json_document.h"
#include "tutti/train/agreement.h"
#include "tutti/train/checkpoint/checkpoint_folder.h"
#include "tutti/train/checkpoint/checkpoint_state.h"
#include "tutti/train/config/config_toml.h"
#include "tutti/train/report/report.h"
#include "tutti/train/task/task.h"
#include "tutti/train/task/task_kind.h"

namespace tutti::train {
namespace fs = std::filesystem;
namespace {

// Which job has begun the run with --fresh.
constexpr const char* kJobFile = ".job";
constexpr size_t kLargestJob = 1 << 12;

bool was_begun_by(const fs::path& run, const std::string& job) {
  return !job.empty() && fs::exists(run / kJobFile) && read_regular_file((run / kJobFile).string(), kLargestJob) == job;
}

std::string joined(const std::vector<std::string>& lines) { return fmt::format("\n  {}", fmt::join(lines, "\n  ")); }

// Chooses the newest whole checkpoint and says what it passes over. Returns its step, or -1.
int64_t choose_checkpoint(const RunFolder& folder, std::vector<std::string>& notes) {
  for (const std::string& name : remove_unfinished(folder.checkpoints())) {
    notes.push_back(fmt::format("removed {}, which was being written or deleted when an earlier start was killed",
                                (folder.checkpoints() / name).string()));
  }
  const std::optional<fs::path> newest = newest_checkpoint(folder.checkpoints());
  const int64_t step = newest ? *step_of(*newest) : -1;
  std::vector<std::string> skipped;
  for (const IncompleteCheckpoint& c : incomplete_checkpoints(folder.checkpoints())) {
    if (*step_of(c.path) > step)
      skipped.push_back(fmt::format("{} is incomplete: {} missing", c.path.string(), fmt::join(c.missing, " and ")));
  }
  TUTTI_CHECK_ENV(
      newest || skipped.empty(),
      "no checkpoint of the run {} is whole:{}\nput back the files, or use --fresh to move the old run aside",
      folder.path().string(), joined(skipped));
  for (const std::string& text : skipped) notes.push_back(fmt::format("skipped a checkpoint: {}", text));
  std::error_code none;
  if (!newest && fs::file_size(folder.metrics(), none) > 0 && !none) {
    notes.push_back(fmt::format("{} has steps in metrics.jsonl but no checkpoint; it starts from the beginning",
                                folder.path().string()));
  }
  return step;
}

void check_settings(const RunStart& start, const Config& config, std::vector<std::string>& notes) {
  const SettingChanges changes = compare_settings(start.saved.inputs.settings, settings_of(config));
  TUTTI_CHECK(
      changes.forbidden.empty(),
      "the run {} was started with other settings:{}\nuse another run.name, or --fresh to move the old run aside",
      start.path.string(), joined(changes.forbidden));
  for (const std::string& change : changes.told) {
    const bool without_effect = change.starts_with("checkpoint.initial_load_path");
    notes.push_back(without_effect ? fmt::format("{} has no effect: the run continues from its own weights", change)
                                   : fmt::format("from step {} on: {}", start.saved.step + 1, change));
  }
}

// What a program of another numerics.version does to the run; "" when it has the same.
std::string numerics_change(const RunStart& start, const Config& config) {
  const int then = start.saved.inputs.numerics_version;
  if (then == kNumericsVersion) return "";
  TUTTI_CHECK(config.numerics.changed == "continue",
              "the run {} was computed by numerics.version {}, and this program has version {}: the last bits of its "
              "numbers would not be those of the "
              "whole run by either; take the program it began with, or give --numerics.changed=continue to go on with "
              "other bits, or start another run "
              "(run.name, or --fresh)",
              start.path.string(), then, kNumericsVersion);
  return fmt::format("numerics.version was {} and is {}", then, kNumericsVersion);
}

// Where the data of a run that continues are not what they were: refuses, or says so and records it.
void check_inputs(const Config& config, RunStart& start, const TaskData& data, RunInputs& inputs) {
  InputChanges found = data.compare(start, inputs);
  const std::string version = numerics_change(start, config);
  TUTTI_CHECK(found.changed.empty() || config.data.changed == "continue",
              "the run {} stands at step {} and its inputs changed since:{}\nput back what it was trained on; or give "
              "--data.changed=continue to go on with {}; or start another run (run.name, or --fresh)",
              start.path.string(), start.saved.step, joined(found.changed), data.what_goes_on());
  if (!version.empty()) found.changed.push_back(version);
  for (const std::string& change : found.changed) {
    inputs.changes.push_back({start.saved.step, start.saved.next_row, displayable(change)});
    start.notes.push_back(fmt::format("{}; continuing all the same from step {}, row {}", change, start.saved.step,
                                      start.saved.next_row));
  }
  start.notes.insert(start.notes.end(), found.notes.begin(), found.notes.end());
}

}  // namespace

RunStart find_run(const Config& config, const FreshStart& fresh, comm::ProcessGroup* group) {
  RunStart start{.path = fs::path(config.run.dir) / config.run.name};
  int64_t step = -1;
  on_first_rank(group, [&] {
    const bool is_of_job = fresh.is_restart && (fresh.job.empty() || was_begun_by(start.path, fresh.job));
    start.moves_aside = fresh.is_asked && !is_of_job;
    if (start.moves_aside || !fs::exists(start.path)) return;
    if (fresh.is_asked)
      start.notes.push_back(
          fmt::format("--fresh was done when this job started first; {} goes on", start.path.string()));
    start.folder = std::make_unique<RunFolder>(config.run.dir, config.run.name);
    step = choose_checkpoint(*start.folder, start.notes);
    if (step < 0) return;
    start.saved = read_state(start.folder->checkpoints() / fmt::format("step-{}", step)).train;
    check_settings(start, settled(config, start.saved.inputs.settings), start.notes);
  });
  step = value_of_first_rank(group, step);
  if (step < 0) return start;
  start.checkpoint = start.path / "checkpoint" / fmt::format("step-{}", step);
  if (!is_first_rank(group)) start.saved = read_state(*start.checkpoint).train;
  return start;
}

RunStart rejoin_run(const Config& config, const std::string& state_json, comm::ProcessGroup* group) {
  RunStart start{.path = fs::path(config.run.dir) / config.run.name,
                 .saved = parse_state_json(state_json, "the memory of the job").train,
                 .is_in_memory = true};
  on_first_rank(group, [&] {
    start.folder = std::make_unique<RunFolder>(config.run.dir, config.run.name);
    remove_unfinished(start.folder->checkpoints());  // of the rank that was lost
  });
  return start;
}

RunData open_run_data(const Config& config, const std::string& cache_folder, RunStart& start,
                      comm::ProcessGroup* group) {
  const std::unique_ptr<TaskData> data = task_kind(config).open_data(config, cache_folder, start);
  RunInputs inputs{
      .settings = settings_of(config), .tokenizer = {}, .corpus = {}, .changes = start.saved.inputs.changes};
  std::string settings;
  for (const auto& [key, value] : inputs.settings) settings += fmt::format("{} = {}\n", key, value);
  std::vector<NamedHash> hashes = data->describe(inputs);
  hashes.insert(hashes.begin(), {"the configuration", hash64(settings)});
  check_equal_on_ranks(group, hashes);
  on_first_rank(group, [&] {
    data->describe_files(inputs);
    if (start.continues()) check_inputs(config, start, *data, inputs);
  });
  return {data->make_task(start), std::move(inputs)};
}

void settle_run(RunStart& start, const Config& config, const FreshStart& fresh, const Task& task) {
  if (!start.folder) {
    start.folder =
        std::make_unique<RunFolder>(config.run.dir, config.run.name, RunFolder::Options{.fresh = start.moves_aside});
    if (start.moves_aside && !fresh.job.empty()) write_file_atomically((start.path / kJobFile).string(), fresh.job);
    TUTTI_CHECK_ENV(!newest_checkpoint(start.folder->checkpoints()),
                    "another run wrote checkpoints to {} meanwhile; start again to continue it", start.path.string());
  }
  write_file_atomically(start.folder->config().string(), to_toml(config));
  if (!start.continues()) task.keep(start.path);
  prune_checkpoints(start.folder->checkpoints(),
                    config.checkpoint.keep_latest);  // an earlier start may have been killed before it did
}

}  // namespace tutti::train
