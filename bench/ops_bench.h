// `tutti bench ops`: eager ops beside a memory copy measured in the same run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

// One measurement. gbps counts each operand once; gflops counts what the op's cost facet says.
struct OpResult {
  std::string op;
  std::string shape;
  std::string dtype;
  int threads;
  std::string mode;  // "eager", "compile" (us to compile one kernel), "memcpy"
  Timing time;
  double gbps = 0;
  double gflops = 0;
};

// Empty `only` runs all; otherwise those whose name contains it. UsageError for the clock of one thread and several
// threads.
std::vector<OpResult> run_ops_bench(int threads, const std::string& only, MeasuredTime clock = MeasuredTime::wall);

}  // namespace tutti::bench
