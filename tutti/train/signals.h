// Ctrl-C and SIGTERM: the first one asks the run to finish its step and save, the second one quits.
#pragma once

#include <csignal>

namespace tutti::train {

// Exit status of a run that ended because of a signal.
constexpr int kInterruptedStatus = 130;

// While an object lives, SIGINT and SIGTERM are handled so; afterwards as before. One per process.
// Ranks of one run may see the signal at different steps: they agree (with a reduction) before they act on it.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether the run should stop after this step.
  bool requested() const;

 private:
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
};

}  // namespace tutti::train
