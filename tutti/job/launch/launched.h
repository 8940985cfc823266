// The connection between a rank and the launcher that started it (launcher.h).
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace tutti::comm {

// The place of a rank in its job, and further facts that its launcher passes to it.
struct LaunchedRank {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;
  int node = 0, nodes = 1;
  std::string store_host = "127.0.0.1";  // the launcher's store, through which the ranks find each other
  int store_port = 0;
  int master_port = 0;       // where PyTorch's rank 0 may serve its own store
  std::string job_key = "";  // "": the store has no job key
  int restart = 0, max_restarts = 0;
  std::string run_id = "none";
};

// The environment variables that a launcher sets for a rank, as "NAME=value": its place, under Tutti's names and
// torchrun's; the store; the job key; and TUTTI_LAUNCHER_PID, the process whose end also ends the rank.
std::vector<std::string> rank_variables(const LaunchedRank& place);

// A port of this host that no process has now. EnvironmentError when there is none.
int find_free_port();

// Default variables for a rank, where `is_set` says that the user has not set them: its share of `cores` in
// TUTTI_THREADS and, as with torchrun, one OpenMP thread per rank when there are several.
std::vector<std::string> rank_defaults(int local_ranks, int cores, bool (*is_set)(const char* name));

// Asks the kernel to send signal `number` to this process when its launcher ends for whatever reason, or, if a shell or
// script is between them, when that ends. Does nothing in a process that was not started by a Tutti launcher. Call it
// early in main, from the main thread. EnvironmentError when the launcher has already ended.
void tie_to_launcher(int number = SIGTERM);

// Whether the Tutti launcher of this process has ended; false where none has started it. Who waits for something that
// only the launcher does asks this, too.
bool launcher_has_ended();

// Tells the Tutti launcher of this process from every other one, or is the name that another launcher has given the job
// (TORCHELASTIC_RUN_ID): equal in all ranks that one launcher starts, and starts again. "" when nobody tells.
std::string launcher_identity();

}  // namespace tutti::comm
