// Several redistributions at once: steps that one collective can carry travel together.
#pragma once

#include <span>
#include <vector>

#include "tutti/dist/redistribute.h"

namespace tutti::dist {

// Step `step` of plan `plan` of a list.
struct StepAt {
  size_t plan, step;
  friend bool operator==(const StepAt&, const StepAt&) = default;
};

// The order in which the plans run side by side, equal on all ranks: each entry is one call, of one step or of steps of
// several plans. Reductions of one kind over the same ranks join, and so do gathers, and reductions whose results are
// scattered, where parts are equal.
std::vector<std::vector<StepAt>> joined_steps(std::span<const RedistributePlan* const> plans);

// The saving by joining: calls, and their cost.
struct Saved {
  int collectives = 0;
  double cost = 0;
};
Saved saved_by_joining(std::span<const RedistributePlan* const> plans, const CostModel& model);

}  // namespace tutti::dist
