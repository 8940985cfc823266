// `tutti bench train`: a training step of a model on random tokens, eager and compiled.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"
#include "tutti/core/dtype.h"

namespace tutti::bench {

struct TrainRow {
  std::string mode;               // eager, compiled
  Timing step;                    // all of the following
  Timing shard, norm, optimizer;  // forward and backward; gradient norm; AdamW with clipping
  double tokens_per_s = 0;        // at the median
  double gflops = 0;  // 6 per active parameter and token, and the products of attention over the pairs that it sees,
                      // forward once and backward twice
  double peak_gflops = 0;  // of all threads, of the units that multiply its dtype
  double peak_mbytes = 0;  // of the allocator, model and optimizer included
  double rss_mbytes = 0;   // of the process before there was a model (process_memory.h)
  double peak_rss_mbytes =
      0;  // of the process during the measured steps; of the second mode with what is left of the first
  double first_loss = 0, last_loss = 0;  // means over the tokens, of the first warm-up step and of the last step
  int64_t parameters = 0;
};

struct TrainProblem {
  std::string model = "debugmodel";
  int64_t rows = 2, sequence_length = 256;
  int threads = 1, steps = 7;
  DType dtype = DType::f32;   // of parameters in forward and backward, f32 or bf16; masters, gradients and the
                              // optimizer's state are f32
  std::string mode = "both";  // eager, compiled, or both
};

// One row per mode, one after the other. InternalError when weights of both differ in a bit after the steps.
std::vector<TrainRow> run_train_bench(const TrainProblem& problem);

}  // namespace tutti::bench
