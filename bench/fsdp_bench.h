// The costs of divided parameters: making their copies whole, reducing gradients to the ranks that store them, and
// checkpoints.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "bench/measure.h"

namespace tutti::bench {

struct FsdpCase {
  int ranks = 2;  // threads of this process, each of one thread
  std::string transport = "shm";
  int64_t group_bytes = 16 << 20;  // f32 parameters of the group that is unsharded and reduced
  int64_t saved_bytes = 64 << 20;  // f32 parameters of the checkpoint
  std::string folder;              // for the checkpoint; "": that of temporary files
  bool small = false;  // little memory and few calls, which check that all of it runs; the times mean nothing
};

struct FsdpRow {
  std::string what;
  int64_t nbytes = 0;
  Timing time;
};

// Calls report with each row, on rank 0.
void run_fsdp_bench(const FsdpCase& problem, const std::function<void(const FsdpRow&)>& report);

}  // namespace tutti::bench
