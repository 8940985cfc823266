// The stage in which ops on distributed tensors are computed: inputs go where the chosen row of the op's sharding rule
// wants them, the op runs on the parts, and its results are distributed tensors.
#pragma once

#include "tutti/dist/op_plan.h"

namespace tutti::dist {

// While it lives, an op on this thread that would move one of its inputs is a UsageError that names the cheapest legal
// layout, and so is one that has no sharding rule.
class StrictPlacementScope {
 public:
  StrictPlacementScope();
  ~StrictPlacementScope();
  StrictPlacementScope(const StrictPlacementScope&) = delete;
  StrictPlacementScope& operator=(const StrictPlacementScope&) = delete;

 private:
  const bool before_;
};

// While it lives, plain tensors beside distributed ones count as replicated on this thread. Without it only tensors of
// one element and at most one dim do, and others are a UsageError.
class ImplicitReplicationScope {
 public:
  ImplicitReplicationScope();
  ~ImplicitReplicationScope();
  ImplicitReplicationScope(const ImplicitReplicationScope&) = delete;
  ImplicitReplicationScope& operator=(const ImplicitReplicationScope&) = delete;

 private:
  const bool before_;
};

// "matmul(f32[4, 8][S(0)], f32[8, 2][R]) on mesh(tp=2)".
std::string describe_call(const OpCall& call, const DeviceMesh& mesh);

// Plans that this rank remembers, and how many were made; for tests and benchmarks.
struct PlanCounts {
  int64_t held = 0, made = 0;
};
PlanCounts plan_counts();
inline constexpr size_t kMostPlans = 4096;

}  // namespace tutti::dist
