// Detects whether the processes of other ranks are alive. May be used by any thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <mutex>
#include <vector>

#include "tutti/runtime/unique_fd.h"

namespace tutti::comm {

class Liveness {
 public:
  // pids[r] is the process of rank r in this process's pid namespace; 0: unknown, treated as alive.
  explicit Liveness(std::vector<pid_t> pids);
  // Threads of this process are never dead.
  bool is_dead(int rank);
  pid_t pid(int rank) const { return pids_[static_cast<size_t>(rank)]; }
  // The first rank that is dead, or -1. If there is none, waits up to `patience` for one.
  int find_dead(std::chrono::milliseconds patience = {});

 private:
  std::vector<pid_t> pids_;
  std::mutex mutex_;
  std::vector<UniqueFd> pidfds_;
};

}  // namespace tutti::comm
