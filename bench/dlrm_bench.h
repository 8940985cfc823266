// `tutti bench dlrm`: a training step of a click model on random examples.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct DlrmProblem {
  int64_t tables = 26;
  int64_t rows = 1'000'000;  // of the largest table; the others have fewer by equal factors, the smallest 10
  int64_t dim = 64;
  std::vector<int64_t> bottom = {512, 256}, top = {512, 256};
  int64_t batch = 2048;  // examples of a step
  int64_t shards = 8;    // virtual shards that they are divided into
  double skew = 1.0;     // of categories: see EmbeddingProblem
  int threads = 1, steps = 20;
  std::string mode = "both";  // eager, compiled, or both
};

struct DlrmRow {
  std::string mode;               // eager, compiled
  Timing step;                    // all of the following
  Timing look_up, dense, tables;  // lookups; forward, backward and AdamW of the layers; the tables' row-wise Adagrad
  double examples_per_s = 0;      // at the median
  double first_loss = 0, last_loss = 0;  // means over the examples, of the first warm-up step and of the last step
  int64_t parameters = 0;
};

// One row per mode, one after the other. InternalError when losses of both differ in a bit.
std::vector<DlrmRow> run_dlrm_bench(const DlrmProblem& problem);

}  // namespace tutti::bench
