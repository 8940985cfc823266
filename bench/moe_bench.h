// `tutti bench moe`: grouped products over equal and unequal loads beside one product of the same work, and a layer of
// experts beside a dense one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "tutti/core/dtype.h"

namespace tutti::bench {

struct MoECase {
  int64_t tokens = 1024, dim = 512, hidden_dim = 256, experts = 32, top_k = 4;
  DType dtype = DType::f32;
  int threads = 1;
  double total_ms = 3000;  // for all ways of a comparison
};

struct MoERow {
  std::string what;  // rows (forward of a grouped product), gradient (of its weights), layer (forward and backward)
  std::string
      way;  // dense: one product, or one feed-forward layer, of the same work; otherwise the load: equal, uneven, few
  double max_over_mean = 0;  // of the load; 0: dense
  Timing time;
  double gflops = 0;     // of the products, a second of the least time
  double rate = 0;       // that by the rate of the dense row
  bool verified = true;  // bits of matmul() for the rows of each expert, finite results of the layers
};

// The numbers of rows of each expert: `equal`, `uneven` (shares fall like 1 / sqrt(expert + 1)) or `few` (one has half
// of the rows, every other one none).
std::vector<int64_t> rows_of_experts(const std::string& load, int64_t rows, int64_t experts);
std::vector<MoERow> run_moe_bench(const MoECase& problem);

}  // namespace tutti::bench
