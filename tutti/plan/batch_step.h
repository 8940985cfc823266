// Batches: independent kernels that run as one launch, a single parallel loop over the work of all of them.
#pragma once

#include <vector>

#include "tutti/plan/kernel_step.h"

namespace tutti::graph {

struct BatchStep {
  // The work of a kernel, in pieces of about equal cost: rows, or blocks of 64 elements if there are few long rows.
  struct Share {
    int64_t first_piece;  // of the batch
    int64_t pieces;
    int64_t units;  // rows, or blocks of 64 elements
    bool along_row;
  };
  std::vector<KernelStep> kernels;
  std::vector<Share> shares;  // per kernel
  int64_t pieces = 0;
  double cycles = 0;  // estimated cycles of one run on one thread
  const TraceKernel* trace = nullptr;
};

// Estimates the cycles of one run of `step` as the larger of its computation and its memory traffic, to within a factor
// of about two.
double cycles_of(const KernelStep& step);

// Makes a batch of `kernels`, with a trace description of all of them.
BatchStep make_batch(std::vector<KernelStep> kernels, const char* graph_key);

// Runs all kernels on the operands at bases[buffer], in parallel if the work is large enough. Returns the first kernel
// that reports an error, or null; in either case all of them have run.
[[nodiscard]] const KernelStep* run_batch(const BatchStep& batch, std::span<char* const> bases);

}  // namespace tutti::graph
