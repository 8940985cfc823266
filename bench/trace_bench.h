// `tutti bench trace`: what profiling costs, while nobody profiles and while somebody does.
#pragma once

#include <string>
#include <vector>

#include "bench/measure.h"

namespace tutti::bench {

struct TraceCost {
  std::string what;
  std::string session;  // "none", "events", "events and memory", "two"
  Timing time;          // of one
};

std::vector<TraceCost> run_trace_bench();

}  // namespace tutti::bench
