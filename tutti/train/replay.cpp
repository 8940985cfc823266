#include "tutti/train/replay.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "tutti/core/error.h"
#include "tutti/train/checkpoint_folder.h"
#include "tutti/train/metrics.h"
#include "tutti/train/run_tokenizer.h"

namespace tutti::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kName = "replay";
constexpr const char* kConfig = "config.resolved.toml";
constexpr const char* kMetrics = "metrics.jsonl";

// Where a replay can start, ascending.
std::vector<int64_t> starts_of(const fs::path& run) {
  std::vector<int64_t> starts{0};
  for (const fs::path& checkpoint : list_checkpoints(run / "checkpoint")) starts.push_back(*step_of(checkpoint));
  return starts;
}

fs::path checkpoint_in(const fs::path& run, int64_t step) { return run / "checkpoint" / fmt::format("step-{}", step); }

}  // namespace

ReplayPlan plan_replay(const fs::path& run, std::optional<int64_t> from, std::optional<int64_t> steps) {
  for (const char* file : {kConfig, kMetrics})
    TUTTI_CHECK(fs::exists(run / file), "{} is not the folder of a run: it holds no {}", run.string(), file);
  std::vector<int64_t> recorded;
  for (const StepRecord& record : read_metrics(run / kMetrics)) recorded.push_back(record.step);
  TUTTI_CHECK(!recorded.empty(), "{} has recorded no step", run.string());
  const std::vector<int64_t> starts = starts_of(run);
  ReplayPlan plan{.run = run};
  if (from) {
    plan.from = *from;
    TUTTI_CHECK(std::find(starts.begin(), starts.end(), *from) != starts.end(), "{} has no checkpoint of step {}; a replay can start from {} (0 is the beginning)",
                run.string(), *from, fmt::join(starts, ", "));
  } else {
    for (const int64_t start : starts) plan.from = start < recorded.back() ? start : plan.from;
  }
  plan.to = steps ? plan.from + *steps : recorded.back();
  TUTTI_CHECK(plan.to > plan.from, "{} has recorded no step behind step {}", run.string(), plan.from);
  for (int64_t step = plan.from + 1; step <= plan.to; ++step) {
    TUTTI_CHECK(std::binary_search(recorded.begin(), recorded.end(), step), "{} has no record of step {}; it has recorded steps {} to {}", run.string(), step,
                recorded.front(), recorded.back());
  }
  return plan;
}

std::vector<std::string> prepare_replay(const ReplayPlan& plan, const fs::path& folder) {
  const fs::path replay = folder / kName;
  if (plan.from > 0) {
    // Training reads a checkpoint that it continues from and never writes to it: a link will do.
    std::error_code failed;
    fs::create_directories(replay / "checkpoint", failed);
    if (!failed) fs::create_directory_symlink(fs::absolute(checkpoint_in(plan.run, plan.from)), checkpoint_in(replay, plan.from), failed);
    TUTTI_CHECK_ENV(!failed, "cannot prepare {}: {}", replay.string(), failed.message());
    copy_run_tokenizer(plan.run, replay);
  }
  return {(plan.run / kConfig).string(), fmt::format("--stop-at={}", plan.to), fmt::format("--run.dir={}", folder.string()),
          fmt::format("--run.name={}", kName), "--checkpoint.keep_latest=-1", "--metrics.tensorboard=false", "--metrics.report=false"};
}

RunDiff compare_replay(const ReplayPlan& plan, const fs::path& folder) {
  const fs::path replay = folder / kName;
  if (plan.from > 0) fs::remove(checkpoint_in(replay, plan.from));  // the link
  RunDiff diff = compare_runs(plan.run, replay);
  diff.only_in_a.clear();  // the steps that were not to be repeated
  std::erase_if(diff.settings, [](const SettingDifference& s) { return !s.may_change_numbers; });
  TUTTI_CHECK_ENV(static_cast<int64_t>(diff.steps.size()) == plan.to - plan.from, "{} of the {} steps were repeated", diff.steps.size(), plan.to - plan.from);
  return diff;
}

}  // namespace tutti::train
