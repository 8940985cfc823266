#include "tutti/train/step/step_profiler.h"

#include <exception>

#include "tutti/core/error.h"

namespace tutti::train {

StepProfiler::StepProfiler(const ProfilerConfig& config, const std::filesystem::path& folder, int rank)
    : config_(config), path_((folder / fmt::format("rank-{}.json", rank)).string()) {}

std::string StepProfiler::before_step() noexcept {
  if (!config_.enable || ++steps_begun_ != config_.first_step) return {};
  try {
    // Ranks that are threads of one process write a file each.
    return profiler_
        .start({.name = fmt::format("{} training step{}", config_.steps, config_.steps == 1 ? "" : "s"),
                .path = path_,
                .filter = TraceFilter::this_rank,
                .events_per_thread = config_.events_per_thread,
                .memory = config_.memory})
        .message;
  } catch (const std::exception&) {
    return {};  // there is no memory to say so
  }
}

std::string StepProfiler::after_step() noexcept {
  return steps_begun_ == config_.first_step + config_.steps - 1 ? finish() : std::string();
}

std::string StepProfiler::finish() noexcept {
  try {
    if (config_.enable && steps_begun_ < config_.first_step) {
      return fmt::format(
          "profiler: no trace: the run ended {} step{} after it was started, before profiler.first_step = {}; lower it",
          steps_begun_, steps_begun_ == 1 ? "" : "s", config_.first_step);
    }
    if (!profiler_.is_running()) return {};
    const ProfilerStatus status = profiler_.stop();
    if (!status.ok()) return status.message;
    const Trace trace = profiler_.trace();
    return fmt::format("trace of {} events{}: {}", trace.event_count(),
                       trace.dropped > 0
                           ? fmt::format(" ({} more were dropped; raise profiler.events_per_thread)", trace.dropped)
                           : "",
                       path_);
  } catch (const std::exception&) {
    return {};
  }
}

}  // namespace tutti::train
