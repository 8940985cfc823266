// Signals that a launcher passes on to its ranks, delivered as events of its loop.
#pragma once

#include <csignal>
#include <optional>

namespace tutti::comm {

// While it lives, SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 arrive at a descriptor instead of ending the process. It
// blocks them in the calling thread, so it is made before other threads are started.
class LaunchSignals {
 public:
  LaunchSignals();
  ~LaunchSignals();
  LaunchSignals(const LaunchSignals&) = delete;
  LaunchSignals& operator=(const LaunchSignals&) = delete;

  int fd() const { return fd_; }
  // The signal mask from before, with which ranks start.
  const sigset_t& old_mask() const { return old_; }
  std::optional<int> take() const;

 private:
  sigset_t set_;
  sigset_t old_;
  int fd_ = -1;
};

// Whether the signal asks the job to end; the others are for the programs to understand.
bool asks_for_the_end(int number);

}  // namespace tutti::comm
