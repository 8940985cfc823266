// `tutti bench compile --gate`: programs op by op and compiled, whose ratio of times and of memory must stay below a
// limit.
#pragma once

#include <string>
#include <vector>

namespace tutti::bench {

struct GateRow {
  std::string program;
  double eager_us = 0, compiled_us = 0;       // minima of rounds in which they follow each other
  int64_t eager_peak = 0, compiled_peak = 0;  // bytes of the allocator in a call, results included
  int64_t launches = 0;                       // of kernels, compiled
  double ratio() const { return compiled_us / eager_us; }
};

// Runs the programs whose name contains `filter`. A program that is above `limit` is measured again, up to three times,
// and the smallest ratio counts: a disturbance does not come three times. InternalError when a bit differs, UsageError
// when no name does.
std::vector<GateRow> run_gate_bench(int threads, const std::string& filter, double limit);

// The geometric mean of the ratios.
double mean_ratio(const std::vector<GateRow>& rows);

}  // namespace tutti::bench
