// `tutti bench math`: every transcendental function over an array, beside the scalar function of the C library.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"
#include "tutti/core/dtype.h"

namespace tutti::bench {

struct MathCase {
  int threads = 1;
  std::string only;    // functions whose name contains this
  bool small = false;  // few elements, to check results and not times
  MeasuredTime clock = MeasuredTime::wall;
};

struct MathRow {
  std::string op;
  DType dtype = DType::f32;
  std::string where;  // cache, memory
  int64_t elements = 0;
  Timing tutti, libm;    // libm: 0 for what it has not
  double gbps = 0;       // of Tutti at the minimum, each operand once
  double ulp = 0;        // largest error over the array in the cache, against the C library in the next wider type
  bool verified = true;  // that error is below the bound of all functions

  double ns() const { return tutti.min_us * 1e3 / static_cast<double>(elements); }
  double libm_ns() const { return libm.min_us * 1e3 / static_cast<double>(elements); }
};

// UsageError for the clock of one thread and several threads.
std::vector<MathRow> run_math_bench(const MathCase& problem);

}  // namespace tutti::bench
