#include "tutti/train/replay.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/train/checkpoint/checkpoint_folder.h"
#include "tutti/train/checkpoint/checkpoint_state.h"
#include "tutti/train/config/config_fields.h"
#include "tutti/train/data/run_tokenizer.h"
#include "tutti/train/report/metrics.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "replay";
constexpr const char* kMetrics = "metrics.jsonl";

// Where a replay can start, ascending.
std::vector<int64_t> starts_of(const fs::path& run) {
  std::vector<int64_t> starts{0};
  for (const fs::path& checkpoint : list_checkpoints(run / "checkpoint")) starts.push_back(*step_of(checkpoint));
  return starts;
}

fs::path checkpoint_in(const fs::path& run, int64_t step) { return run / "checkpoint" / fmt::format("step-{}", step); }

// A value as TOML writes it, as a flag takes it: texts stand without quotes there.
std::string as_flag(std::string value) {
  if (value.size() >= 2 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
  return value;
}

// The settings of the repeated steps that numbers depend on. The configuration is that of the run's last start, and a
// run may have gone on with others.
std::vector<std::string> recorded_settings(const ReplayPlan& plan) {
  std::vector<std::string> flags;
  std::optional<SavedState> first;
  for (const fs::path& folder : list_checkpoints(plan.run / "checkpoint")) {
    const int64_t step = *step_of(folder);
    if (step <= plan.from) continue;
    SavedState state = read_state(folder);
    for (const InputChange& change : state.train.inputs.changes)
      TUTTI_CHECK(change.step <= plan.from || change.step >= plan.to,
                  "{} changed after step {}: {}; replay the steps before or behind it", plan.run.string(), change.step,
                  change.what);
    if (first && state.train.inputs.settings != first->train.inputs.settings && first->train.step < plan.to)
      throw UsageError(
          fmt::format("{} went on with other settings between its checkpoints of steps {} and {}; replay steps up to "
                      "{}, or from a later checkpoint",
                      plan.run.string(), first->train.step, step, first->train.step));
    if (!first) first = std::move(state);
    if (step >= plan.to) break;
  }
  if (!first) return flags;
  for (const auto& [key, value] : first->train.inputs.settings)
    flags.push_back(fmt::format("--{}={}", key, as_flag(value)));
  return flags;
}

}  // namespace

ReplayPlan plan_replay(const fs::path& run, std::optional<int64_t> from, std::optional<int64_t> steps) {
  ReplayPlan plan{.run = run};
  for (const fs::path& file : {plan.config(), run / kMetrics})
    TUTTI_CHECK(fs::exists(file), "{} is not the folder of a run: it holds no {}", run.string(),
                file.filename().string());
  std::vector<int64_t> recorded;
  for (const StepRecord& record : read_metrics(run / kMetrics)) recorded.push_back(record.step);
  TUTTI_CHECK(!recorded.empty(), "{} has recorded no step", run.string());
  const std::vector<int64_t> starts = starts_of(run);
  if (from) {
    plan.from = *from;
    TUTTI_CHECK(std::find(starts.begin(), starts.end(), *from) != starts.end(),
                "{} has no checkpoint of step {}; a replay can start from {} (0 is the beginning)", run.string(), *from,
                fmt::join(starts, ", "));
  } else {
    for (const int64_t start : starts) plan.from = start < recorded.back() ? start : plan.from;
  }
  plan.to = steps ? plan.from + *steps : recorded.back();
  TUTTI_CHECK(plan.to > plan.from, "{} has recorded no step behind step {}", run.string(), plan.from);
  for (int64_t step = plan.from + 1; step <= plan.to; ++step) {
    TUTTI_CHECK(std::binary_search(recorded.begin(), recorded.end(), step),
                "{} has no record of step {}; it has recorded steps {} to {}", run.string(), step, recorded.front(),
                recorded.back());
  }
  return plan;
}

std::vector<std::string> prepare_replay(const ReplayPlan& plan, const fs::path& folder) {
  const fs::path replay = folder / kName;
  if (plan.from > 0) {
    // Training reads a checkpoint that it continues from and never writes to it: a link will do.
    std::error_code failed;
    fs::create_directories(replay / "checkpoint", failed);
    if (!failed)
      fs::create_directory_symlink(fs::absolute(checkpoint_in(plan.run, plan.from)), checkpoint_in(replay, plan.from),
                                   failed);
    TUTTI_CHECK_ENV(!failed, "cannot prepare {}: {}", replay.string(), failed.message());
    copy_run_tokenizer(plan.run, replay);
  }
  std::vector<std::string> overrides = recorded_settings(plan);
  for (const std::string& flag : {fmt::format("--run.dir={}", folder.string()), fmt::format("--run.name={}", kName),
                                  std::string("--checkpoint.keep_latest=-1"),
                                  std::string("--metrics.tensorboard=false"), std::string("--metrics.report=false")})
    overrides.push_back(flag);
  // How the run divided its work over its ranks does not change the numbers, and need not be possible on those of the
  // replay.
  for (const Field& field : config_fields()) {
    if (field.section == "parallelism")
      overrides.push_back(fmt::format("--{}={}", field.name(), as_flag(to_toml(default_of(field)))));
  }
  return overrides;
}

RunDiff compare_replay(const ReplayPlan& plan, const fs::path& folder) {
  const fs::path replay = folder / kName;
  if (plan.from > 0) fs::remove(checkpoint_in(replay, plan.from));  // the link
  RunDiff diff = compare_runs(plan.run, replay);
  diff.only_in_a.clear();  // the steps that were not to be repeated
  std::erase_if(diff.checkpoints_only_in_a, [&](int64_t step) { return step <= plan.from || step > plan.to; });
  diff.checkpoints_only_in_b.clear();  // where the replay stopped
  std::erase_if(diff.settings, [](const SettingDifference& s) { return !s.may_change_numbers; });
  TUTTI_CHECK_ENV(static_cast<int64_t>(diff.steps.size()) == plan.to - plan.from, "{} of the {} steps were repeated",
                  diff.steps.size(), plan.to - plan.from);
  return diff;
}

}  // namespace tutti::train
