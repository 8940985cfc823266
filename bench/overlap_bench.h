// `tutti bench comm --overlap`: how much of the time that communication takes is hidden behind computation.
#pragma once

#include <string>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::bench {

// Medians on rank 0, of steps that take turns and begin together.
struct OverlapResult {
  std::string step;  // one of overlap_steps()
  int ranks = 1;
  std::string transport;
  bool progress_thread = false;
  double compute_us = 0;     // the step without communication
  double apart_us = 0;       // computing and communicating take turns
  double overlapped_us = 0;  // calls move while the rank computes
  // (apart - overlapped) / (apart - compute): 1 when communication costs nothing any more, negative when overlapping
  // costs more than it saves.
  double hidden() const { return apart_us > compute_us ? (apart_us - overlapped_us) / (apart_us - compute_us) : 0; }
};

// "buckets": 16 times two products of 384 x 384 matrices, and an all_reduce of 1 MiB that begins after each; all
// results are waited for in the end. "quickstart": eager forward and backward of 8 virtual shards of the quickstart's
// model over the ranks, with the exchange of their gradients.
const std::vector<std::string>& overlap_steps();

// Every rank of the group calls it. `repeats` steps of each way count.
OverlapResult run_overlap_case(comm::ProcessGroup& group, const std::string& step, bool progress_thread, int repeats);

}  // namespace tutti::bench
