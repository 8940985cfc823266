// `tutti bench comm`: collectives of one group, through ProcessGroup, in the terms of nccl-tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::bench {

struct CommCase {
  std::string op;          // one of comm_ops()
  int64_t bytes;           // asked for; rounded as below
  bool symmetric = false;  // buffers in symmetric memory
};

struct CommResult {
  CommCase what;
  // nccl-tests' size: of the whole buffer (all_gather, reduce_scatter, all_to_all: of all ranks together), which holds
  // whole f32, equally many per rank and one at least. 0: barrier.
  int64_t bytes = 0;
  int ranks = 1;
  std::string transport;
  double min_us = 0, median_us = 0, p99_us = 0;  // of one call, on rank 0
  double algbw_gbs = 0, busbw_gbs = 0;           // from the median
  int64_t wrong = 0;                             // elements that differ from the definition, over all ranks
};

// Every collective between single tensors, without the "_single" in its name.
const std::vector<std::string>& comm_ops();

// Every rank of the group calls it; f32, sum. The result holds on all ranks.
CommResult run_comm_case(comm::ProcessGroup& group, const CommCase& what);

// Digests of the outputs of every op, dtype, reduce op and size of a fixed list, over all ranks; equal on all
// transports.
struct CommDigest {
  std::string op, dtype, reduce;
  int64_t elements;
  uint64_t digest;
};
std::vector<CommDigest> comm_digests(comm::ProcessGroup& group);

}  // namespace tutti::bench
