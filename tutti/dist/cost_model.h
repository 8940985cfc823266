// What the steps of a redistribution cost: measured where the user names measured costs, else tabulated by transport. Costs only rank plans,
// and all ranks of a mesh must rank them alike.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tutti/dist/step_kind.h"

namespace tutti::dist {

class DeviceMesh;

// A call of a collective: what it costs for itself, and what it moves in a microsecond.
struct StepCost {
  double latency = 3;  // in microseconds
  double bytes_per_us = 5000;
  double of(double bytes) const { return latency + bytes / bytes_per_us; }
};

// Costs that were measured, by transport, kind of step and number of ranks. `tutti bench comm --costs FILE` writes them.
class MeasuredCosts {
 public:
  // Lines of "transport step ranks latency_us bytes_per_us", and comments after '#'. UsageError naming the line and what is wrong with it:
  // an unknown step, numbers that are none or not positive, a row that stands twice, no rows at all.
  static MeasuredCosts parse(std::string_view text);
  // Of a file of at most 1 MiB. UsageError and EnvironmentError as above, naming the file.
  static MeasuredCosts read(const std::string& path);
  std::string to_text() const;

  // Replaces the row of that transport, step and number of ranks, or adds it.
  void set(const std::string& transport, StepKind kind, int64_t ranks, StepCost cost);
  void set(const MeasuredCosts& others);
  // That of the nearest number of ranks that was measured, the larger of two; null: this step was not measured over that transport.
  const StepCost* find(std::string_view transport, StepKind kind, int64_t ranks) const;
  size_t size() const { return rows_.size(); }

 private:
  std::map<std::tuple<std::string, StepKind, int64_t>, StepCost> rows_;
};

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

// The table for a transport of that name; that of the slowest one for a name that has none, such as a transport of a user.
CostModel cost_model(std::string_view transport);
// The transports that have a table of their own.
std::vector<std::string> priced_transports();

// The costs of the slowest transport of the mesh. Ranks whose own groups have different transports get the same ones.
CostModel cost_model_of(const DeviceMesh& mesh);

// The measured costs that TUTTI_DTENSOR_COSTS names on this rank, as text; "": the variable is unset. Errors of reading it are kept as text,
// too, so that the ranks of a mesh can tell each other: see agreed_costs().
std::string costs_of_environment();
// The costs of a text from costs_of_environment(), maybe of another rank: null for "". The errors of MeasuredCosts::read().
std::shared_ptr<const MeasuredCosts> costs_from(const std::string& text);

}  // namespace tutti::dist
