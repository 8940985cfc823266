// Kernels that need nothing of each other, run as one launch: one loop over the work of all, shared out at once.
#pragma once

#include <vector>

#include "tutti/graph/kernel_step.h"

namespace tutti::graph {

struct BatchStep {
  // The work of a kernel in pieces of about equal cost: rows, or 64 elements of few long ones.
  struct Share {
    int64_t first_piece;  // of the batch
    int64_t pieces;
    int64_t units;        // rows, or blocks of 64 elements
    bool along_row;
  };
  std::vector<KernelStep> kernels;
  std::vector<Share> shares;  // per kernel
  int64_t pieces = 0;
  double cycles = 0;          // of one run, on one thread
  const TraceKernel* trace = nullptr;
};

// Cycles of one run of `step`, by what it computes and what it moves, whichever is more; good to a factor of two or so.
double cycles_of(const KernelStep& step);

// A batch of `kernels`, whose trace says what they are.
BatchStep make_batch(std::vector<KernelStep> kernels, const char* graph_key);

// Runs all on the operands at bases[buffer]; in parallel when the work is worth waking the threads. Gives the first kernel that
// reports an error, or null; all have run then.
[[nodiscard]] const KernelStep* run_batch(const BatchStep& batch, std::span<char* const> bases);

}  // namespace tutti::graph
