// `tutti bench embedding --hot-row`: a step on a table most of whose lookups are of one row, in turns with steps that
// threads carry out by atomic additions.
#pragma once

#include "bench/embedding_bench.h"

namespace tutti::bench {

struct HotRowProblem {
  int64_t entries = 1 << 20;  // each a bag
  int64_t hits = 1'000'000;   // of them of one row; the others are of rows of their own
  int64_t columns = 64;
  int threads = 1;
  double total_ms = 20'000;
};
// Kinds: `read` of all gradients; `atomic`, each element of each gradient added to the table at once; `atomic_runs`,
// where gradients of neighbours with the same row are added first; and the step `sgd`. On the current pool.
EmbeddingResult run_hot_row_bench(const HotRowProblem& problem);

}  // namespace tutti::bench
