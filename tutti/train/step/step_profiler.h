// The profiler of a training run: traces the steps given in the configuration.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "tutti/runtime/trace/profiler.h"
#include "tutti/train/config/config.h"

namespace tutti::train {

// One per rank. It never throws and never affects the run: failures are reported in a note.
class StepProfiler {
 public:
  // Writes folder/rank-<rank>.json.
  StepProfiler(const ProfilerConfig& config, const std::filesystem::path& folder, int rank);

  // Call these around every step after this start of the run. before_step() starts the session before the first traced
  // step; after_step() ends it after the last one and writes the file. Both return a message for the user, or "".
  std::string before_step() noexcept;
  std::string after_step() noexcept;
  // Call at the end of the run: ends a session that is still running. Returns a message if the run never reached the
  // first traced step.
  std::string finish() noexcept;

 private:
  ProfilerConfig config_;
  std::string path_;
  int64_t steps_begun_ = 0;
  Profiler profiler_;
};

}  // namespace tutti::train
