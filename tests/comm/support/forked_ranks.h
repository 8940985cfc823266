// Ranks as forked processes, for tests that kill them.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::comm {

struct ForkedResult {
  int wait_status = 0;
  std::string error;  // what() of the exception the rank ended with, else ""
  bool succeeded() const { return wait_status == 0 && error.empty(); }
};

struct ForkOptions {
  int64_t slot_bytes = 4096;      // small, so that tests see many parts
  std::string transport = "shm";  // of run_world
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // A rank that is not done by then is ended by SIGALRM.
  std::chrono::seconds limit = std::chrono::seconds(120);
  // Runs here when all ranks have been forked, before they begin: the place to start threads, whose locks no copy may
  // hold.
  std::function<void()> before_start = {};
  // Runs here as soon as all ranks have been started.
  std::function<void(const std::vector<pid_t>&)> meanwhile = {};
};

// Runs fn in `count` child processes, which get their numbers, and waits for all. `started` runs here after each start.
std::vector<ForkedResult> fork_processes(int count, const std::function<void(int)>& fn, const ForkOptions& options = {},
                                         const std::function<void(int rank, pid_t)>& started = {});
// Each a rank of one group that shares memory; no store.
std::vector<ForkedResult> run_forked(int ranks, const std::function<void(ProcessGroup&)>& fn,
                                     const ForkOptions& options = {});
// Each a rank with a world (groups.h) over a store that this process serves; for hier each half of them is a host.
std::vector<ForkedResult> run_world(int ranks, const std::function<void(ProcessGroup&)>& fn,
                                    const ForkOptions& options = {});

// Values of rank r for an all_reduce of `count`: magnitudes differ so that another order of adding shows.
std::vector<float> rank_values(int rank, int64_t count);
// The sum of rank_values over `ranks` ranks by the halving rule, written as plainly as possible.
std::vector<float> serial_tree(int ranks, int64_t count);
bool same_bits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace tutti::comm
