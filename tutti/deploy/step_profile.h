// Times of the steps of a call: the events that a trace of the live function has, one after another.
#pragma once

#include <memory>

#include "tutti/deploy/step_time.h"
#include "tutti/runtime/trace/trace_recorder.h"

namespace tutti::deploy {

// Collects the steps of this thread while it lives. Where there is no observer it costs one comparison.
class StepProfile {
 public:
  explicit StepProfile(std::shared_ptr<const StepObserver> observer);
  ~StepProfile();
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;
  // The call has ended well: passes its steps to the observer, in the order in which they began.
  void report();

 private:
  const std::shared_ptr<const StepObserver> observer_;
  const int64_t start_ns_;
  std::shared_ptr<TraceSession> session_;
};

}  // namespace tutti::deploy
