// The cost of ops on distributed tensors beyond that of the ops on their parts.
#pragma once

#include <functional>
#include <string>

#include "bench/measure.h"

namespace tutti::bench {

struct DTensorCase {
  int ranks = 2;       // threads of this process
  bool small = false;  // few calls, which check that all of it runs; the times mean nothing
};

struct DTensorRow {
  std::string op;
  std::string layout;
  Timing plain;  // the op on this rank's part; 0 for conversions, which have no plain form
  Timing dtensor;
};

// Calls report with each row, on rank 0.
void run_dtensor_bench(const DTensorCase& problem, const std::function<void(const DTensorRow&)>& report);

}  // namespace tutti::bench
