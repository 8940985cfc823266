// Forked processes that may be killed, for tests of memory that outlives them.
#pragma once

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <exception>
#include <functional>
#include <vector>

namespace tutti::comm {

// Runs fn(number) in `count` processes and returns their wait statuses: 0 where it returned, exit status 1 where it
// threw. `started` runs here after each start.
inline std::vector<int> run_in_processes(int count, const std::function<void(int)>& fn,
                                         const std::function<void(int, pid_t)>& started = {}) {
  std::vector<pid_t> pids;
  for (int i = 0; i < count; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      alarm(60);
      try {
        fn(i);
      } catch (const std::exception&) {
        _exit(1);
      }
      _exit(0);
    }
    pids.push_back(pid);
    if (started) started(i, pid);
  }
  std::vector<int> statuses;
  for (const pid_t pid : pids) {
    int status = -1;
    waitpid(pid, &status, 0);
    statuses.push_back(status);
  }
  return statuses;
}

}  // namespace tutti::comm
