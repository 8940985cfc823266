// What the launcher tells a rank through its environment.
//
// TUTTI_RANK, TUTTI_WORLD_SIZE  who it is among how many
// TUTTI_SHM_FD                  descriptor of the memory shared by the ranks
// TUTTI_LAUNCHER_PID            the process whose end ends the rank
// RANK, WORLD_SIZE, LOCAL_RANK  the same under torchrun's names, for programs that read those
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/shm_group.h"

namespace tutti::comm {

struct RankEnvironment {
  int rank = 0;
  int world_size = 1;
  int shm_fd = -1;
  pid_t launcher_pid = 0;

  // The variables as "NAME=value".
  std::vector<std::string> to_variables() const;
};

// The place this process has among the ranks of a launcher; nullopt when no launcher started it. UsageError when the
// variables are incomplete or contradict each other.
std::optional<RankEnvironment> read_rank_environment();

// Joins the group the launcher made, and asks the kernel to terminate (SIGTERM) this process when the launcher goes,
// however it goes. Call it early in main, from the main thread.
std::unique_ptr<ShmGroup> join_launched_group(const RankEnvironment& environment, ShmGroupOptions options = {});

}  // namespace tutti::comm
