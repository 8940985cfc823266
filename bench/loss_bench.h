// `tutti bench loss`: linear_cross_entropy beside linear and cross_entropy.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "tutti/core/dtype.h"

namespace tutti::bench {

struct LossCase {
  int64_t tokens = 1024, features = 512, vocab = 32000;
  DType dtype = DType::f32;
  int threads = 1;
  int64_t max_bytes = int64_t{256} << 20;
  bool in_forward = false;  // also with gradients that the forward computes
  int repeats = 5;
  std::string only;  // the passes whose name contains this
};

struct LossRow {
  std::string what;  // unfused, fused, in forward
  std::string pass;  // forward, all gradients, frozen weight, frozen input
  CallTiming timing;
  double gflops = 0;       // of the products of the unfused loss, a second of the least CPU time
  double peak_gflops = 0;  // of one thread, f32
  double peak_mbytes = 0;  // of the allocator, operands and results included
  double held_mbytes = 0;  // without operands and gradients
  bool verified = true;    // loss and gradients have the bits of the unfused ones
};

std::vector<LossRow> run_loss_bench(const LossCase& problem);

// "4096 x 1024 x 151936"
std::string shape_of(const LossCase& problem);

}  // namespace tutti::bench
