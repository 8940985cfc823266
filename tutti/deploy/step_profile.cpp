#include "tutti/deploy/step_profile.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "tutti/core/error.h"

namespace tutti::deploy {
namespace {

const char* line_of(const TraceEvent& event) {
  const std::vector<std::string>& stack = event.kernel->info.stack;
  if (!stack.empty()) return stack.front().c_str();
  const auto* place = event.context.place;
  return place == nullptr || place->stack.empty() ? "" : place->stack.front().c_str();
}

}  // namespace

StepProfile::StepProfile(std::shared_ptr<const StepObserver> observer)
    : observer_(std::move(observer)), start_ns_(observer_ ? trace_now_ns() : 0) {
  if (observer_ == nullptr) return;
  std::string busy;
  session_ = TraceRecorder::process().open(
      {.name = "packaged call", .path = "", .filter = TraceFilter::this_thread, .memory = false}, &busy);
  TUTTI_CHECK(session_ != nullptr, "the call cannot be profiled while so many others are traced: {}", busy);
}

StepProfile::~StepProfile() {
  if (session_ != nullptr) TraceRecorder::process().close(session_);
}

void StepProfile::report() {
  if (session_ == nullptr) return;
  const TraceHarvest harvest = TraceRecorder::process().close(std::exchange(session_, nullptr));
  std::vector<const TraceEvent*> steps;
  for (const TraceHarvest::Thread& thread : harvest.threads) {
    if (thread.log->thread() != trace_thread_id()) continue;  // workers: parts of what this thread ran
    for (int64_t i = 0; i < thread.size; ++i) {
      const TraceEvent& event = (*thread.log)[i];
      const bool is_step = event.category == TraceCategory::kernel || event.category == TraceCategory::extern_call;
      if (is_step && event.kernel != nullptr) steps.push_back(&event);
    }
  }
  std::stable_sort(steps.begin(), steps.end(), [](const auto* a, const auto* b) { return a->begin_ns < b->begin_ns; });
  for (const TraceEvent* step : steps)
    (*observer_)({step->kernel->info, line_of(*step), step->begin_ns - start_ns_, step->end_ns - step->begin_ns});
}

}  // namespace tutti::deploy
