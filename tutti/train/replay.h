// Replay: repeats steps of a recorded run in a separate folder. The bits are expected to be the same, whatever the
// layout.
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
  int64_t from = 0;           // the step of its checkpoint from which the replay starts; 0: the beginning
  int64_t to = 0;             // the last step that is repeated
  std::filesystem::path config() const { return run / "config.resolved.toml"; }
};

// Default for `from`: the newest checkpoint that is followed by a recorded step, or the beginning. Default for `steps`:
// all steps recorded from there on. UsageError when `run` is not a run folder, has no such checkpoint (the message
// lists those it has), or when a step to repeat is not in its metrics.
ReplayPlan plan_replay(const std::filesystem::path& run, std::optional<int64_t> from, std::optional<int64_t> steps);

// Creates in `folder`/replay a run that stands where the recorded run stood at plan.from, and returns the overrides of
// its configuration with which the steps are repeated there; settings are those that the first checkpoint after
// plan.from recorded. UsageError when settings, text or tokenizer changed between two of the steps; EnvironmentError
// when it cannot be written.
std::vector<std::string> prepare_replay(const ReplayPlan& plan, const std::filesystem::path& folder);

// Compares the repeated steps, and later checkpoints that both runs have, with the recorded ones.
RunDiff compare_replay(const ReplayPlan& plan, const std::filesystem::path& folder);

}  // namespace tutti::train
