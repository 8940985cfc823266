// What ties a rank to the launcher that started it (launcher.h).
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace tutti::comm {

// Where a rank stands in its job, and what else its launcher knows.
struct LaunchedRank {
  int rank = 0, world_size = 1;
  int local_rank = 0, local_world_size = 1;
  int node = 0, nodes = 1;
  std::string store_host = "127.0.0.1";  // the launcher's store, where the ranks meet
  int store_port = 0;
  std::string job_key = "";  // "": the store has none
  int restart = 0, max_restarts = 0;
  std::string run_id = "none";
};

// What a launcher tells the rank, as "NAME=value": its place, under Tutti's names and torchrun's; the store; the job's
// key; and TUTTI_LAUNCHER_PID, the process whose end ends the rank.
std::vector<std::string> rank_variables(const LaunchedRank& place);

// What a rank gets where `is_set` says that the user has not chosen: its share of `cores` in TUTTI_THREADS and, as from
// torchrun, one OpenMP thread for each of several ranks.
std::vector<std::string> rank_defaults(int local_ranks, int cores, bool (*is_set)(const char* name));

// Asks the kernel to send this process `number` when its launcher goes, however it goes; when a shell or a script stands
// between them, when that goes. Does nothing for a process that no launcher of Tutti started. Call it early in main, from
// the main thread. EnvironmentError when the launcher is gone already.
void tie_to_launcher(int number = SIGTERM);

}  // namespace tutti::comm
