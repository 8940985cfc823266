// From a function to the plan of one combination of sizes.
#pragma once

#include <string>
#include <vector>

#include "tutti/deploy/plan.h"
#include "tutti/graph/tree.h"
#include "tutti/package/held_state.h"

namespace tutti::deploy {
struct BoundGroup;
}

namespace tutti::package_detail {

struct TracedPlan {
  deploy::Plan plan;              // a source that is a constant counts `held`; its kernels are set
  std::vector<Tensor> held;       // tensors of the function whose storages are the constants
  std::vector<const OpDef*> ops;  // that steps call
  std::string steps;              // for people
};

// Traces the function on these arguments and compiles its kernels for this processor. gradients: with those that the
// caller records. Throws what the function throws, CaptureError, and UsageError when packages do not hold what it does.
TracedPlan trace_plan(const std::string& function, std::span<const Tensor> arguments, graph::TraceFn fn, bool gradients,
                      const HeldState& state, const std::vector<deploy::BoundGroup>& groups);

}  // namespace tutti::package_detail
