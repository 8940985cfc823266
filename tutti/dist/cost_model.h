// The costs of the steps of a redistribution: measured where the user names measured costs, else tabulated by
// transport. Costs only rank plans, and all ranks of a mesh must rank them alike.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/dist/measured_costs.h"

namespace tutti::dist {

class DeviceMesh;

// The costs of steps on one mesh.
struct CostModel {
  StepCost tabulated = {};
  // The slowest of these transports counts.
  std::vector<std::string> transports = {};
  std::shared_ptr<const MeasuredCosts> measured = nullptr;

  // The cost in microseconds of a step over `ranks` ranks by which each receives `bytes`.
  double of(StepKind kind, int64_t ranks, double bytes) const;
  double latency(StepKind kind, int64_t ranks) const { return of(kind, ranks, 0); }
  // "tabulated for shm", "measured for shm (8 rows)".
  std::string to_string() const;
};

// The table for a transport of that name; that of the slowest one for a name that has none, such as a transport of a
// user.
CostModel cost_model(std::string_view transport);
// The transports that have a table of their own.
std::vector<std::string> priced_transports();

// The costs of the slowest transport of the mesh. Ranks whose own groups have different transports get the same ones.
CostModel cost_model_of(const DeviceMesh& mesh);

}  // namespace tutti::dist
