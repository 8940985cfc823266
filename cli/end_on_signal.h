// Ctrl-C, SIGTERM and SIGHUP end the run that a command has started, too, and leave no temporary folder behind.
#pragma once

#include <signal.h>

#include <thread>

namespace tutti::cli {

class RunsFolder;

// Make it before other threads. It handles the signals while it lives.
class EndOnSignal {
 public:
  explicit EndOnSignal(RunsFolder& folder);

 private:
  sigset_t signals_;
  std::jthread watch_;
};

}  // namespace tutti::cli
