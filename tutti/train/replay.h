// Steps of a recorded run, trained again in a folder of their own: the same bits are expected, whatever the layout.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tutti/train/run_diff.h"

namespace tutti::train {

struct ReplayPlan {
  std::filesystem::path run;  // the recorded run
  int64_t from = 0;           // its checkpoint that the replay starts from; 0: the beginning
  int64_t to = 0;             // the last step that is repeated
};

// Without `from`: the newest checkpoint with a recorded step behind it, or the beginning. Without `steps`: all that are recorded
// from there on. UsageError when `run` is no run folder, has no such checkpoint (those that it has are listed), or when a step
// to repeat is not in its metrics.
ReplayPlan plan_replay(const std::filesystem::path& run, std::optional<int64_t> from, std::optional<int64_t> steps);

// Makes `folder`/replay a run that stands where the recorded one stood, and returns the arguments of `tutti train` that
// repeat the steps there. EnvironmentError when it cannot be written.
std::vector<std::string> prepare_replay(const ReplayPlan& plan, const std::filesystem::path& folder);

// Compares the repeated steps, and the checkpoints behind them that both runs have, with the recorded ones.
RunDiff compare_replay(const ReplayPlan& plan, const std::filesystem::path& folder);

}  // namespace tutti::train
