// `tutti bench train`: a training step of a model on random tokens, eager and compiled.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct TrainRow {
  std::string mode;               // eager, compiled
  Timing step;                    // all of the following
  Timing shard, norm, optimizer;  // forward and backward; gradient norm; AdamW with clipping
  double tokens_per_s = 0;        // at the median
  double gflops = 0;              // by the training FLOPs of the model, attention's causality not discounted
  double peak_gflops = 0;         // multiply-adds of all threads
  double peak_mbytes = 0;         // of the allocator, model and optimizer included
  double first_loss = 0, last_loss = 0;  // means over the tokens, of the first warm-up step and of the last step
  int64_t parameters = 0;
};

struct TrainProblem {
  std::string model = "debugmodel";
  int64_t rows = 2, sequence_length = 256;
  int threads = 1, steps = 7;
};

// One row per mode, one after the other. InternalError when weights differ in a bit after the steps.
std::vector<TrainRow> run_train_bench(const TrainProblem& problem);

}  // namespace tutti::bench
