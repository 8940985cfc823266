// `tutti bench moe --ranks`: a layer of experts that ranks divide, by each way to bring tokens to the experts of other
// ranks.
#pragma once

#include <functional>
#include <string>

#include "bench/measure.h"
#include "bench/moe_bench.h"

namespace tutti::bench {

struct DispatchRow {
  std::string way;   // local (every rank has all experts), standard, standard_exact, direct_store, gather_on_read
  std::string load;  // even, or one: all tokens choose the experts of one rank
  int ranks = 1;
  Timing time;             // forward and backward of the layer
  int64_t kernels = 0;     // of ops, in one step
  int64_t barriers = 0;    // collectives, and meetings in shared memory
  int64_t sent_bytes = 0;  // to other ranks, or read there, by rank 0
  int64_t copies = 0;      // of received rows out of their buffer
  int64_t host_reads = 0;  // of counts
  int64_t room_bytes = 0;  // of receive buffers in shared memory
  bool verified = true;    // outputs and gradients of tokens have the bits of the local layer
};

struct DispatchCase {
  MoECase layer;
  int ranks = 2;
  std::string transport = "threads";
  int steps = 20;
};

// Ranks are threads of one thread each.
void run_dispatch_bench(const DispatchCase& problem, const std::function<void(const DispatchRow&)>& report);

}  // namespace tutti::bench
