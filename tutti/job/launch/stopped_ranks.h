// Ranks whose processes have been stopped, by SIGSTOP, a terminal or a debugger: they are alive, do nothing, and all
// others wait.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

namespace tutti::comm {

class StoppedRanks {
 public:
  using Clock = std::chrono::steady_clock;
  // `where` follows a rank's pid in the notices: " of node 1 (hostb)".
  explicit StoppedRanks(std::string where) : where_(std::move(where)) {}

  struct Rank {
    int rank = 0;
    pid_t pid = 0;
  };
  // Looks at the running ranks, once it is time to. A notice for each that has been stopped for two seconds, and for
  // each of those that goes on: "rank 1 (pid 4711) of node 1 (hostb) has been stopped for 2 s ...".
  std::vector<std::string> look(const std::vector<Rank>& running);
  Clock::time_point next_look() const { return next_; }

 private:
  struct Stopped {
    Clock::time_point since;
    bool is_told = false;
  };
  const std::string where_;
  std::map<int, Stopped> stopped_;  // by rank
  Clock::time_point next_ = Clock::now();
};

}  // namespace tutti::comm
