// Starts ranks as processes of this host, looks after them, and reports the one that failed.
//
// Rank 0 shares this program's output; whole lines of the others, out and err alike, appear on stderr behind
// "[rank r] ". SIGINT and SIGTERM are passed on to every rank once; the third one kills. When a rank fails, the others
// have a moment to notice and say so, then get SIGTERM and, after a grace time, SIGKILL. No rank outlives the launcher (rank_environment.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti::comm {

struct LaunchOptions {
  int ranks = 1;
  std::string program = "/proc/self/exe";
  std::vector<std::string> argv;         // argv[0] included
  std::vector<std::string> environment;  // "NAME=value", on top of this process's own
  std::chrono::milliseconds notice = std::chrono::milliseconds(500);  // from a failure to SIGTERM for the others
  std::chrono::milliseconds grace = std::chrono::seconds(10);         // from there to SIGKILL
};

// Runs to the end of all ranks and returns the exit status of the whole: 0; the status of the first rank that failed;
// 128 + n when signal n killed it; 130 when the ranks ended after SIGINT or SIGTERM. Says on stderr which rank failed
// and how. EnvironmentError when a rank cannot be started (those already started are ended first).
// Blocks the two signals in the calling thread meanwhile, so call it before starting other threads.
int launch_local(const LaunchOptions& options);

// "rank 2 (pid 4711) exited with status 1" / "rank 2 (pid 4711) was killed by SIGKILL". `wait_status` as from waitpid.
std::string describe_exit(int rank, int pid, int wait_status);

}  // namespace tutti::comm
