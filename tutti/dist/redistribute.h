// Plans that bring a tensor from one layout into another: which steps, over which ranks, how many bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/dist/cost_model.h"
#include "tutti/dist/wrapper.h"

namespace tutti::dist {

class Mover;

struct RedistributeStep {
  StepKind kind;
  std::vector<int> axes;  // of the mesh, that take part
  const DTensorSpec* from;
  const DTensorSpec* to;
  double bytes = 0;  // that a rank receives, on average over the mesh
  double cost = 0;   // in microseconds, by the cost model
};

struct RedistributePlan {
  const DTensorSpec* from;
  const DTensorSpec* to;
  std::vector<RedistributeStep> steps;
  double bytes = 0, cost = 0;
  int collectives() const;
  // "f32[8, 4]@[S(0)] -> f32[8, 4]@[R]: gather over dim 0 (96 B)"; a line per step.
  std::string to_string() const;
};

// The cheapest plan. Both specs are of one mesh, sizes and dtype. UsageError where no plan exists, saying why.
RedistributePlan plan_redistribution(const DTensorSpec& from, const DTensorSpec& to, const CostModel& model = {});

// Runs the plan of this rank, remembered per pair of specs, on the part of `t`, below autograd; returns the part in the
// wanted layout, which may share memory with that of `t`.
Tensor redistributed_part(const Tensor& t, const DTensorSpec& wanted);
Tensor redistributed_part(const Tensor& local, const DTensorSpec& from, const DTensorSpec& wanted, const Mesh& mesh);
// The same, whose last collective may be under way when it returns: what reads the part waits for it, as for functional
// collectives.
Tensor redistributed_later(const Tensor& local, const DTensorSpec& from, const DTensorSpec& wanted, const Mesh& mesh);
// The result of `mover` for `local`, of these sizes, likewise.
Tensor moved_later(const Mover& mover, const Tensor& local, const Extents& sizes);
// redistributed_part for several parts of tensors on one mesh, in their places; what can travel together does, see
// joined_steps.h.
struct PartMove {
  const DTensorSpec *from, *wanted;
};
void redistribute_parts(std::span<Tensor> parts, std::span<const PartMove> moves, const Mesh& mesh);

}  // namespace tutti::dist
