// What a package runs for one combination of sizes: the steps of a compiled function, and the memory they work on.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/graph.h"
#include "tutti/plan/step.h"

namespace tutti::deploy {

// Memory that exists before a call.
struct PlanSource {
  bool is_constant = false;  // else an argument, dense
  int32_t index = 0;
};

struct Plan {
  std::vector<graph::Buffer> buffers;  // `source` of a given one counts the sources
  std::vector<PlanSource> sources;
  std::vector<graph::Step> steps;
  std::vector<graph::Value> results;
  // What KernelStep::reporter counts: the op that fails when the kernel reports an error, with its place.
  std::vector<std::string> reporters;
};

// Bytes of the memory that plans are given.
struct PlanMemory {
  std::vector<int64_t> constants, arguments;
};

// Throws PackageError unless every step stays within its buffers and is called as its op and its kernel expect.
void check_plan(const Plan& plan, const PlanMemory& memory);

}  // namespace tutti::deploy
