// `tutti bench comm --input-buffers`: what one more bucket of gradients on its way is worth, over a link as slow as one
// likes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/process_group.h"

namespace tutti::bench {

// A step whose buckets of gradients begin to move under backward, at most `buffers` at once: medians on rank 0, of
// steps that take turns and begin together.
struct InputBuffersResult {
  int64_t buffers = 0;
  int ranks = 1;
  std::string transport;
  size_t buckets = 0, early = 0;                            // of a step, and those that began under backward
  size_t waits = 0;                                         // buckets that had to end so that another one could begin
  double step_us = 0, waited_us = 0, waited_at_end_us = 0;  // the step; the waits; the wait for the last `buffers`
};

// Eager forward and backward of 8 virtual shards of the quickstart's model over the ranks, which divide the batch, and
// the exchange of its gradients. Every rank of the group calls it, with the same numbers of buffers; `repeats` steps
// with each count. InternalError when the gradients of two numbers differ in a bit.
std::vector<InputBuffersResult> run_input_buffers_case(comm::ProcessGroup& group, std::span<const int64_t> buffers,
                                                       int repeats);

}  // namespace tutti::bench
