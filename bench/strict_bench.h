// `tutti bench strict`: what an op costs because its sums have one order, beside the same thing without a promised
// order.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct StrictCase {
  int threads = 1;
  std::string only;    // ops whose name contains this
  bool small = false;  // sizes that check results within a second, not times
  MeasuredTime clock = MeasuredTime::wall;
};

struct StrictRow {
  std::string op;
  std::string shape;
  std::string baseline;  // what runs in turns with the op
  Timing strict, free;
  double gbps = 0;  // of the strict op at the median, each operand once
  double gflops = 0;
  bool verified = true;  // both results agree within rounding
  double ratio() const { return strict.min_us / free.min_us; }
};

// In f32. UsageError for the clock of one thread and several threads.
std::vector<StrictRow> run_strict_bench(const StrictCase& problem);

}  // namespace tutti::bench
