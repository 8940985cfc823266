// Starts ranks as processes of this host, looks after them, and reports the one that failed; on several nodes together
// with the launchers there.
//
// Whole lines of what the ranks write appear behind "[rank r] ". SIGINT, SIGTERM and SIGHUP are passed on to every rank
// and what it has started; the third one kills. SIGUSR1 and SIGUSR2 are passed on to the ranks. When a rank fails, the
// others have a moment to notice and say so, then get SIGTERM and, after a grace time, SIGKILL. Then all ranks are
// started again, if restarts are left: with a new store and, where the launcher makes it, a new job key, so that nothing
// of an earlier attempt meets the new ranks. No rank outlives the launcher (launched.h).
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace tutti::comm {

// Several nodes, each with a launcher. That of node 0 serves a store at the endpoint, where the nodes meet. Ranks are
// numbered by node rank, then local rank; the numbers of local ranks may differ.
struct NodeOptions {
  int min_nodes = 1;
  int max_nodes = 1;
  int node_rank = 0;
  std::string host = "";  // the endpoint, the same for all; "" = this launcher is alone
  int port = 0;           // 0: the system picks; for one node only
  std::chrono::milliseconds quiet = std::chrono::seconds(3);        // with min_nodes there and nobody new so long, it starts
  std::chrono::milliseconds join = std::chrono::seconds(300);       // for min_nodes to come
  std::chrono::milliseconds lost_after = std::chrono::seconds(10);  // a node that says nothing so long is lost
};

struct LaunchOptions {
  int ranks = 1;  // on this node
  std::string program = "/proc/self/exe";
  std::vector<std::string> argv;         // argv[0] included
  std::vector<std::string> environment;  // "NAME=value", on top of this process's own
  bool all_prefixed = false;  // false: rank 0 shares this program's output, and all that others write goes to stderr
  bool announce = false;      // says each rank's pid
  std::string log_dir = "";   // captured output goes to LOG_DIR/<restart>/rank<r>.out and .err instead, with `tee` also there
  bool tee = false;
  int max_restarts = 0;
  std::string run_id = "";    // "": made up, or that of node 0
  NodeOptions nodes = {};
  std::chrono::milliseconds notice = std::chrono::milliseconds(500);  // from a failure to SIGTERM for the others
  std::chrono::milliseconds grace = std::chrono::seconds(10);         // from there to SIGKILL
};

// Runs to the end of all ranks and returns the exit status of the whole: 0; the status of the first rank that failed;
// 128 + n when signal n killed it; 130 when the ranks ended after a signal. Says on stderr which rank failed and how, with
// its last lines on stderr where they are captured; every node says the same. UsageError when the nodes contradict each
// other or the endpoint needs a job key. EnvironmentError when a rank cannot be started (those already started are ended
// first), nodes do not come, or the endpoint cannot be served or reached.
// Blocks the signals in the calling thread meanwhile, so call it before starting other threads.
int launch_local(const LaunchOptions& options);

// "rank 2 (pid 4711) exited with status 1" / "rank 2 (pid 4711) was killed by SIGKILL". `wait_status` as from waitpid;
// `where` follows the pid: " of node 1 (hostb)".
std::string describe_exit(int rank, int pid, int wait_status, const std::string& where = "");

}  // namespace tutti::comm
