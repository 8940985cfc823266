// Plans that bring a tensor from one layout into another: which steps, over which ranks, how many bytes.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/dist/wrapper.h"

namespace tutti::dist {

enum class StepKind : uint8_t {
  cut,             // each rank keeps some of what it has: no communication
  gather,          // an even all_gather along one axis
  exchange,        // each rank sends others what they lack: all_to_all_v, without padding
  all_reduce,      // over one or more axes
  reduce_scatter,  // over one axis
  fill,            // Replicate to Partial: all but the first rank hold the identity
};
std::string_view name_of(StepKind kind);

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

// The cost in microseconds of a collective over `ranks` ranks by which each receives `bytes`, by transport.
struct CostModel {
  double latency = 3;              // of a call
  double bytes_per_us = 5000;
  double of(int64_t ranks, double bytes) const { return latency * static_cast<double>(ranks > 1) + bytes / bytes_per_us; }
};
// The model of the transport of that name; that of the slowest one for a name that has none, such as a transport of a user.
CostModel cost_model(std::string_view transport);
// The transports that have a model of their own.
std::vector<std::string> priced_transports();

// The model of the slowest transport of the mesh. Ranks whose own groups have different transports get the same one, for they must all
// choose the same plan.
CostModel cost_model_of(const DeviceMesh& mesh);

// The cheapest plan. Both specs are of one mesh, sizes and dtype. UsageError where no plan exists, saying why.
RedistributePlan plan_redistribution(const DTensorSpec& from, const DTensorSpec& to, const CostModel& model = {});

// Runs the plan of this rank, remembered per pair of specs, on the part of `t`, below autograd; returns the part in the wanted layout,
// which may share memory with that of `t`.
Tensor redistributed_part(const Tensor& t, const DTensorSpec& wanted);
Tensor redistributed_part(const Tensor& local, const DTensorSpec& from, const DTensorSpec& wanted, const Mesh& mesh);
// The same for several parts of tensors on one mesh, in their places; what can travel together does, see joined_steps.h.
struct PartMove {
  const DTensorSpec *from, *wanted;
};
void redistribute_parts(std::span<Tensor> parts, std::span<const PartMove> moves, const Mesh& mesh);

}  // namespace tutti::dist
