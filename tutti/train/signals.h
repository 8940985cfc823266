// Ctrl-C and SIGTERM: the first one asks the run to finish its step and save, the second one quits.
#pragma once

namespace tutti::train {

// Exit status of a run that ended because of a signal.
constexpr int kInterruptedStatus = 130;

// While an object lives, SIGINT and SIGTERM are handled so; when the last one is gone, as before the first. Any number
// of threads may have one: ranks that are threads see the same signals. Ranks of one run may see the signal at
// different steps: they agree (with a reduction) before they act on it.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether the run should stop after this step.
  bool requested() const;
};

}  // namespace tutti::train
