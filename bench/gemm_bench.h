// `tutti bench gemm`: time of one matrix product beside the multiply-add peak measured in the same minute.
#pragma once

#include <cstdint>
#include <string>

#include "tutti/core/dtype.h"
#include "tutti/runtime/numerics.h"

namespace tutti::bench {

struct GemmCase {
  int64_t m, n, k;
  DType dtype = DType::f32;   // of A, B and C
  bool b_transposed = false;  // B in memory as [n, k], as the weight of a linear layer
  int64_t batch = 1;
  bool b_packed = false;  // packed before, outside of what is timed: packed_linear() with B as [n, k], a batch of 1
  NumericsMode mode = NumericsMode::strict;
  bool a_transposed = false;  // A in memory as [k, m], as an operand of the gradient of a weight
  bool is_cold = false;       // each call takes other copies of A, B and C, all together larger than the caches
};

struct GemmTiming {
  GemmCase problem;
  double min_us, median_us;
  double gflops;        // from min_us
  double peak_gflops;   // of one thread, f32
  double gbytes_per_s;  // operands and result once, from min_us
  bool verified;    // sampled elements have the bits of the definition; in fast mode, are within rounding of sums in
                    // double
  std::string how;  // the kernel that was chosen, where there is a choice
};

// Runs the case on the current pool (bench/measure.h). Operands are random, the same in every run.
GemmTiming time_gemm(const GemmCase& problem);

// What is special about operands: " A^T B^T cold", or nothing.
std::string layout_text(const GemmCase& problem);

// "1024x1024x1024 f32  min ... us  median ... us  ... GFLOP/s (.. % of one thread's peak ...)  ... GB/s"
std::string to_line(const GemmTiming& timing);

}  // namespace tutti::bench
