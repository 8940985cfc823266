// The profiler of a training run: traces the steps that the configuration names.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tutti/runtime/trace/profiler.h"
#include "tutti/train/config.h"

namespace tutti::train {

// One per rank. Never throws and never changes the run: what fails is said in a note.
class StepProfiler {
 public:
  // Writes folder/rank-<rank>.json.
  StepProfiler(const ProfilerConfig& config, const std::filesystem::path& folder, int rank);

  // Around every step of this start of the run. `before_step` starts the session in front of the first traced step;
  // `after_step` ends it and writes the file behind the last one. Both return what to tell the user, "" for nothing.
  std::string before_step() noexcept;
  std::string after_step() noexcept;
  // The run ends: so does a session that is still running. Says when the run never came to the first traced step.
  std::string finish() noexcept;

 private:
  ProfilerConfig config_;
  std::string path_;
  int64_t steps_begun_ = 0;
  Profiler profiler_;
};

}  // namespace tutti::train
